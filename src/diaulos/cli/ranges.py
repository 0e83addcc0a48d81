"""Ranges of a quantity, as flags state them: `8..2048`, `8..2048:64`, `1GiB..80GiB:x2`."""

from collections.abc import Callable

from diaulos.errors import InputError

_SYNTAX = "a range is FIRST..LAST, FIRST..LAST:STEP or FIRST..LAST:xFACTOR, growing"


def is_range(text: str | None) -> bool:
    """Whether a flag states a range and not one value."""
    return text is not None and ".." in text


def parse_range(text: str, parse: Callable[[str], float]) -> tuple[float, ...]:
    """The values of a range, ascending; the last one is always among them.

    Without a step each value is twice the one before. `parse` reads one value.
    """
    ends, _, step = text.partition(":")
    first, last = (parse(end) for end in ends.split("..", 1))
    if not 0 < first <= last:
        raise InputError(f"the range {text!r} does not grow from above 0", _SYNTAX)
    follows = _step(text, step or "x2", parse)
    values = [first]
    while follows(values[-1]) < last:
        values.append(follows(values[-1]))
    return (*values, last) if last > first else (first,)


def _step(text: str, step: str, parse: Callable[[str], float]) -> Callable[[float], float]:
    """From a value to the one behind it."""
    if step.startswith("x"):
        factor = _number(text, step.removeprefix("x"))
        if factor <= 1:
            raise InputError(f"the range {text!r} has the factor {factor:g}", "it must be above 1")
        return lambda value: value * factor
    width = parse(step)
    if width <= 0:
        raise InputError(f"the range {text!r} has the step {step}", "it must be above 0")
    return lambda value: value + width


def _number(text: str, factor: str) -> float:
    try:
        return float(factor)
    except ValueError:
        raise InputError(f"{factor!r} in the range {text!r} is no number", _SYNTAX) from None


def parse_count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise InputError(f"{text!r} is not a number of devices", "it is a whole number from 1 on")
    return int(text)
