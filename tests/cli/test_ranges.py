"""Ranges of flags: their values, and what is no range."""

import pytest

from diaulos.cli.ranges import is_range, parse_count, parse_range
from diaulos.errors import InputError
from diaulos.units import parse_bytes


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8..64", (8, 16, 32, 64)),
        ("8..65", (8, 16, 32, 64, 65)),
        ("3..6:1", (3, 4, 5, 6)),
        ("1..8:3", (1, 4, 7, 8)),
        ("1..100:x10", (1, 10, 100)),
        ("5..5", (5,)),
    ],
)
def test_values(text: str, values: tuple[float, ...]) -> None:
    """From the first value by steps or factors, and the last one always."""
    assert values == parse_range(text, parse_count)


def test_sizes() -> None:
    """Ends and steps of a range are read alike."""
    assert parse_range("1KiB..3KiB:1KiB", parse_bytes) == (1024, 2048, 3072)


@pytest.mark.parametrize("text", ["8..4", "4..8:x1", "4..8:xtwo", "4..8:0B", "0B..4"])
def test_no_growth(text: str) -> None:
    """A range that would not grow, or not end, is refused."""
    with pytest.raises(InputError, match="range"):
        parse_range(text, parse_bytes)


@pytest.mark.parametrize("text", ["-3", "2.5", "0", "many"])
def test_counts_are_whole(text: str) -> None:
    """Devices are counted in whole numbers from 1 on."""
    with pytest.raises(InputError, match="whole number"):
        parse_count(text)


def test_what_is_a_range() -> None:
    """Two dots make a range; one value or none is no range."""
    assert is_range("1..2")
    assert not is_range("12")
    assert not is_range(None)
