"""Megatron-LM's text form of which layers each stage holds: `Et*3|(tt|)*29|L`.

Stages in the order of the model have `|` between them; `E` is the embedding, `t` a block, `L` the
final norm, head and loss; `x*3` is x three times, and round brackets make one x of several.
"""

import re
from collections.abc import Sequence
from itertools import groupby

from diaulos.errors import InputError

_TOKEN = re.compile(r"\s*(?:(?P<open>\()|(?P<close>\))|(?P<part>[EtL|])|\*\s*(?P<count>\d+))")
_ENDS = "a layout has E in the first stage, L in the last, and t for each block"


def print_layout(blocks_per_stage: Sequence[int]) -> str:
    """The layout of these stages, input end first."""
    *others, last = map(_blocks, blocks_per_stage)
    text = f"E{others[0]}|" if others else "E"
    for stage, equal in groupby(others[1:]):
        count = len(list(equal))
        text += f"{stage}|" if count == 1 else f"({stage}|)*{count}"
    return f"{text}{last}L"


def parse_layout(text: str) -> tuple[int, ...]:
    """The blocks of each stage; an `InputError` where it is not a layout."""
    stages = _written_out(text).split("|")
    first, last = stages[0], stages[-1]
    inner = [first.removeprefix("E"), *stages[1:]]
    inner[-1] = inner[-1].removesuffix("L")
    if not first.startswith("E") or not last.endswith("L") or set("".join(inner)) - {"t"}:
        raise InputError(f"the layout {text!r} has its letters in other places", _ENDS)
    return tuple(map(len, inner))


def _blocks(share: int) -> str:
    return "t" * share if share <= 2 else f"t*{share}"


def _written_out(text: str) -> str:
    """The layout without brackets and counts."""
    levels: list[list[str]] = [[]]
    position = 0
    while position < len(text.rstrip()):
        token = _TOKEN.match(text, position)
        if token is None:
            raise InputError(
                f"the layout {text!r} has {text[position:].strip()[:1]!r} in it",
                "it is of E, t, L, |, round brackets and *n",
                "for example Et*3|(tt|)*4|L",
            )
        position = token.end()
        if token["open"]:
            levels.append([])
        elif token["close"]:
            inside = "".join(levels.pop())
            if not levels:
                raise InputError(f"the layout {text!r} closes a bracket that is not open")
            levels[-1].append(inside)
        elif token["count"]:
            if not levels[-1]:
                raise InputError(f"the layout {text!r} repeats nothing", "*n stands behind a part")
            levels[-1][-1] *= int(token["count"])
        else:
            levels[-1].append(token["part"])
    if len(levels) > 1:
        raise InputError(f"the layout {text!r} leaves a bracket open")
    return "".join(levels[0])
