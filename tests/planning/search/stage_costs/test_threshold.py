"""Thresholds are compared exactly."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from diaulos.planning.search.stage_costs.threshold import Threshold


@given(st.fractions(0, 10**20), st.integers(1, 10**6), st.booleans())
def test_whole_units_within_a_threshold(time: Fraction, factor: int, strict: bool) -> None:
    """The number that is found keeps to factor times the threshold, and one more does not."""
    most = Threshold(time=time, strict=strict).whole(factor)
    limit = time * factor
    keeps = [number < limit if strict else number <= limit for number in (most, most + 1)]
    assert keeps == [True, False] or most == 2**62


def test_what_is_exactly_the_threshold() -> None:
    """It keeps to a threshold, and breaks a strict one."""
    assert Threshold(time=Fraction(3, 2)).whole(2) == 3
    assert Threshold(time=Fraction(3, 2), strict=True).whole(2) == 2
    assert Threshold(time=Fraction(3, 2)).whole(3) == 4
    assert Threshold(time=Fraction(3, 2), strict=True).whole(3) == 4


def test_nothing_is_longer_than_64_bits_hold() -> None:
    """However long a threshold, whole numbers stay in range."""
    assert Threshold(time=Fraction(2**200)).whole(7) == 2**62
