"""Amounts as whole numbers of a tiny unit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diaulos.planning.fixed_point import fixed_point_below


@given(st.lists(st.floats(0.0, 1e12), min_size=1, max_size=20))
def test_amounts_keep_their_size(amounts: list[float]) -> None:
    """Units times the unit is the amount, to a part of the sum that floats cannot tell."""
    point = fixed_point_below(sum(amounts))
    units = point.units(amounts)
    assert np.abs(units * point.unit - np.array(amounts)).max() <= 1e-15 * max(sum(amounts), 1e-300)
    assert 0 <= int(units.sum()) <= 2**61


def test_nothing_is_nothing() -> None:
    """Where all amounts are 0 the unit does not matter."""
    assert fixed_point_below(0.0).units([0.0, 0.0]).tolist() == [0, 0]
