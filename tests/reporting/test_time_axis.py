"""The time axis."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.reporting.time_axis import TimeScale, ticks


@given(end=st.floats(1e-9, 1e9))
def test_ticks_are_few_even_and_inside(end: float) -> None:
    """From 0 to at most the end, 5 to 13 of them, evenly spaced."""
    moments = [moment for moment, _ in ticks(end)]
    assert moments[0] == 0
    assert moments[-1] <= end * (1 + 1e-9)
    assert 4 <= len(moments) <= 13
    steps = [b - a for a, b in itertools.pairwise(moments)]
    assert max(steps) == pytest.approx(min(steps))


@pytest.mark.parametrize(
    ("end", "texts"),
    [
        (63.0, ["0", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]),
        (0.0501, ["0", "5 ms", "10 ms"]),
        (3e-6, ["0", "0.5 us", "1 us"]),
        (8e-8, ["0", "10 ns", "20 ns"]),
    ],
)
def test_ticks_carry_their_unit(end: float, texts: list[str]) -> None:
    """The unit is that of the end; the numbers are 1, 2 or 5 times a power of ten."""
    assert [text for _, text in ticks(end)][: len(texts)] == texts


def test_a_scale_keeps_to_its_window() -> None:
    """Moments outside the window are at its edges."""
    scale = TimeScale(left=100, width=200, end_seconds=4)
    assert [scale.x(seconds) for seconds in (-1, 0, 1, 4, 9)] == [100, 100, 150, 300, 300]
    assert scale.pixels(2) == 100
