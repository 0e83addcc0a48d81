"""What layers are called: as the closed forms call them, and by stack where there are several."""

from collections.abc import Sequence

from diaulos.models.decoders.operations import EMBEDDING, FINAL_NORM, HEAD
from diaulos.models.traced.blocks import Block
from diaulos.models.traced.tracer import Segment

_HEAD_TRANSFORM = "head_transform"


def segment_names(segments: Sequence[Segment]) -> list[str]:
    """A name for each segment, no two alike."""
    prefixes = _stack_prefixes([segment.block for segment in segments if segment.block is not None])
    counts: dict[str, int] = {}
    names: list[str] = []
    for place, segment in enumerate(segments):
        if segment.block is None:
            names.append(_between(segments, place, prefixes, names))
            continue
        prefix = prefixes[segment.block.stack]
        names.append(f"{prefix}block_{counts.setdefault(prefix, 0)}")
        counts[prefix] += 1
    return names


def _between(
    segments: Sequence[Segment], place: int, prefixes: dict[str, str], names: list[str]
) -> str:
    """Of what runs before a stack, inside of one, or behind the last one."""
    following = next((s.block for s in segments[place:] if s.block is not None), None)
    before = next((s.block for s in segments[:place][::-1] if s.block is not None), None)
    if following is not None:
        if before is not None and before.stack == following.stack:
            return f"behind_{names[-1]}"
        return f"{prefixes[following.stack]}{EMBEDDING}"
    if segments[place].is_head or place + 1 == len(segments):
        return HEAD
    return _HEAD_TRANSFORM if any(s.product for s in segments[place].tape.forward) else FINAL_NORM


def _stack_prefixes(blocks: Sequence[Block]) -> dict[str, str]:
    """Nothing for one stack; for several, where their paths differ."""
    stacks = list(dict.fromkeys(block.stack for block in blocks))
    if len(stacks) < 2:
        return dict.fromkeys(stacks, "")
    parts = [stack.split(".") for stack in stacks]
    shared = 0
    while len({part[shared] if shared < len(part) else "" for part in parts}) == 1:
        shared += 1
    found = [part[shared] if shared < len(part) else "main" for part in parts]
    if len(set(found)) < len(found):
        found = [stack.replace(".", "_") for stack in stacks]
    return {stack: f"{name}_" for stack, name in zip(stacks, found, strict=True)}
