"""What stages and links cost."""

import math

import pytest

from diaulos.errors import InputError
from diaulos.schedules.costs import Link, StageCosts, chunk_costs
from tests.schedules.shapes import line


def test_parts_of_a_stage_sum_to_it() -> None:
    """All but what is handed on, which is as much for each part."""
    whole = StageCosts(
        forward_seconds=3, backward_seconds=6, weight_backward_seconds=1.5, update_seconds=9,
        reduce_seconds=12, output_bytes=7, activation_bytes=30, fixed_bytes=60, version_bytes=90,
    )  # fmt: skip
    assert whole.divided(3) == StageCosts(
        forward_seconds=1, backward_seconds=2, weight_backward_seconds=0.5, update_seconds=3,
        reduce_seconds=4, output_bytes=7, activation_bytes=10, fixed_bytes=20, version_bytes=30,
    )  # fmt: skip
    assert StageCosts(forward_seconds=2, backward_seconds=4).divided(2).weight_seconds == 1


def test_chunks_take_parts_of_their_position() -> None:
    """In a V of two positions stages 0 and 3 are parts of the first."""
    first = StageCosts(forward_seconds=2, backward_seconds=4)
    second = StageCosts(forward_seconds=6, backward_seconds=8)
    costs = chunk_costs(line(2, 1, chunks=2, folded=True), [first, second])
    assert [cost.forward_seconds for cost in costs] == [1, 3, 3, 1]


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["forward_seconds", "weight_backward_seconds", "version_bytes"])
def test_amounts_are_finite_and_not_negative(name: str, bad: float) -> None:
    """The field and the value are named."""
    fields = {"forward_seconds": 1.0, "backward_seconds": 1.0, name: bad}
    with pytest.raises(InputError, match=rf"{name} is .*; it must be finite and at least 0"):
        StageCosts(**fields)


def test_a_half_is_not_more_than_the_whole() -> None:
    """The weight half is a part of the backward."""
    with pytest.raises(InputError, match=r"weight_backward_seconds is 3.0; it is a part of"):
        StageCosts(forward_seconds=1.0, backward_seconds=2.0, weight_backward_seconds=3.0)


def test_a_link_takes_bytes_over_bandwidth() -> None:
    """Nothing where it is not limited."""
    assert Link(bandwidth_bytes_per_second=4).seconds(10) == 2.5
    assert Link().seconds(1e12) == 0.0
