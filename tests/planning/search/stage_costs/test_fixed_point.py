"""Amounts as whole numbers of a tiny unit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.planning.search.stage_costs.fixed_point import fixed_point_below, limited_fixed_point


@given(st.lists(st.just(0.0) | st.floats(1e-200, 1e12), min_size=1, max_size=20))
def test_amounts_keep_their_size(amounts: list[float]) -> None:
    """Units times the unit is the amount, to a part of the sum that floats cannot tell."""
    point = fixed_point_below(sum(amounts))
    units = point.units(amounts)
    assert np.abs(units * point.unit - np.array(amounts)).max() <= 1e-15 * max(sum(amounts), 1e-300)
    assert 0 <= int(units.sum()) <= 2**61


def test_nothing_is_nothing() -> None:
    """Where all amounts are 0 the unit does not matter."""
    assert fixed_point_below(0.0).units([0.0, 0.0]).tolist() == [0, 0]


def test_amounts_over_a_limit_do_not_coarsen_the_unit() -> None:
    """Beside a limit of 1, 0.1 is exact to its last bits though 1e30 may be added."""
    scale = limited_fixed_point(1.0, addends=3, total=1e30)
    small, large = scale.units(np.array([0.1, 1e30])).tolist()
    assert small / scale.limit == pytest.approx(0.1, rel=1e-15)
    assert large > scale.limit


def test_everything_fits_under_a_loose_limit() -> None:
    """Where the sum of all amounts is within the limit, rounding does not push it over."""
    scale = limited_fixed_point(10.0, addends=3, total=9.9)
    assert scale.units(np.array([3.3, 3.3, 3.3])).sum() <= scale.limit


def test_a_limit_of_nothing() -> None:
    """Only nothing fits into nothing."""
    scale = limited_fixed_point(0.0, addends=2, total=1.0)
    assert (scale.units(np.array([0.0, 1e-300])) <= scale.limit).tolist() == [True, False]
