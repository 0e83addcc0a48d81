"""Sizes, rates and times between text and numbers."""

import pytest

from diaulos.errors import InputError
from diaulos.units import format_bytes, format_seconds, parse_bandwidth, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 * 2.0**30),
        ("80GB", 80e9),
        ("512 MiB", 512 * 2.0**20),
        ("1.5kib", 1536.0),
        ("2TiB", 2 * 2.0**40),
        ("3e9", 3e9),
        ("0", 0.0),
        (" 7B ", 7.0),
    ],
)
def test_sizes(text: str, size: float) -> None:
    """Binary and decimal units are told apart; a bare number is bytes."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "8 GiBB", "-1GB", "nan", "1e999", "eight GB", "8Gib/s"]
)
def test_what_is_no_size(text: str) -> None:
    """Anything else is refused with an example of what works."""
    with pytest.raises(InputError, match=r"is not a size.*for example 8GiB or 80GB"):
        parse_bytes(text)


def test_bandwidths() -> None:
    """Rates end in /s or are bare bytes per second."""
    assert parse_bandwidth("25GiB/s") == 25 * 2.0**30
    assert parse_bandwidth("100GB/s") == 100e9
    assert parse_bandwidth("1e9") == 1e9


@pytest.mark.parametrize("text", ["0", "0GB/s", "fast", "-1", "25GiB/h"])
def test_what_is_no_bandwidth(text: str) -> None:
    """A link carries something."""
    with pytest.raises(InputError, match="is not a bandwidth"):
        parse_bandwidth(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0.0, "0 B"),
        (1023.0, "1023 B"),
        (1024.0, "1 KiB"),
        (7.95 * 2**30, "7.95 GiB"),
        (-3 * 2.0**20, "-3 MiB"),
        (5 * 2.0**50, "5120 TiB"),
    ],
)
def test_sizes_as_text(size: float, text: str) -> None:
    """Sizes are shown in the largest binary unit of which there is one."""
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.0, "12 s"), (0.01235, "12.35 ms"), (4.5e-5, "45 us"), (3e-9, "3 ns"), (0.0, "0 ns")],
)
def test_times_as_text(seconds: float, text: str) -> None:
    """Times are shown in the unit that suits them."""
    assert format_seconds(seconds) == text


@pytest.mark.parametrize("size", [1.0, 5.5e9, 3 * 2.0**31])
def test_text_is_read_back(size: float) -> None:
    """What is shown for a size can be given as one, to the digits that are shown."""
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=1e-3)
