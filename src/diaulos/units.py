"""Sizes, rates and times between text and numbers, always with their unit."""

import math
import re

from diaulos.errors import InputError

_BYTES_PER_UNIT = {
    "B": 1.0,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KIB": 2.0**10,
    "MIB": 2.0**20,
    "GIB": 2.0**30,
    "TIB": 2.0**40,
}
_SIZE = re.compile(r"\s*([0-9.eE+-]+?)\s*([KMGT]i?B|B)?\s*", re.IGNORECASE)


def parse_bytes(text: str) -> float:
    """Bytes of a size such as `8GiB`, `80GB`, `512MiB` or a bare number of bytes."""
    match = _SIZE.fullmatch(text)
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or not math.isfinite(number) or number < 0:
        raise InputError(
            f"{text!r} is not a size",
            "a size is a number of at least 0 with a unit (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)",
            "for example 8GiB or 80GB",
        )
    return number * _BYTES_PER_UNIT[(match[2] or "B").upper()]


def parse_bandwidth(text: str) -> float:
    """Bytes per second of a rate such as `25GiB/s`, or a bare number of bytes per second."""
    size = text.strip().removesuffix("/s")
    try:
        bandwidth = parse_bytes(size)
    except InputError:
        bandwidth = 0.0
    if bandwidth <= 0:
        raise InputError(
            f"{text!r} is not a bandwidth",
            "a bandwidth is a size above 0 per second, in bytes",
            "for example 25GiB/s or 100GB/s",
        )
    return bandwidth


def format_bytes(size_bytes: float) -> str:
    """A size with three digits that matter, in binary units: `7.95 GiB`."""
    magnitude = abs(size_bytes)
    units = ["TiB", "GiB", "MiB", "KiB", "B"]
    while magnitude >= 1024 and len(units) > 1:
        magnitude /= 1024
        units.pop()
    unit = units[-1]
    return f"{math.copysign(magnitude, size_bytes):.4g} {unit}"


def format_seconds(seconds: float) -> str:
    """A time with four digits that matter, in the unit that suits it: `12.35 ms`."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"
