"""Every layer is on one stage, in order."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.estimating.stages import even_shares, split_layers
from diaulos.models.operations import Workload
from tests.estimating.models import gpt

OPERATIONS = gpt(hidden=64, layers=7, heads=4)(Workload(microbatch_size=1, sequence_length=16))


@given(blocks=st.integers(1, 200), data=st.data())
def test_shares_are_even_and_whole(blocks: int, data: st.DataObject) -> None:
    """Shares add up, differ by one at most, and the ends have none of the larger ones first."""
    stages = data.draw(st.integers(1, blocks))
    shares = even_shares(blocks, stages)
    assert sum(shares) == blocks
    assert len(shares) == stages
    assert max(shares) - min(shares) <= 1
    if blocks % stages:
        assert shares[-1] == min(shares)


@given(cuts=st.lists(st.integers(0, 7), max_size=4))
def test_all_layers_are_kept_in_order(cuts: list[int]) -> None:
    """Whatever the shares, the stages together are the model (case U2)."""
    bounds = [0, *sorted(cuts), 7]
    shares = tuple(b - a for a, b in itertools.pairwise(bounds))
    stages = split_layers(OPERATIONS, len(shares), shares)
    assert tuple(layer for stage in stages for layer in stage.layers) == OPERATIONS.layers
    assert tuple(stage.blocks for stage in stages) == shares


@pytest.mark.parametrize(
    ("stages", "shares", "message"),
    [
        (8, None, "8 stages and 7 blocks"),
        (2, (3, 3), "3,3, are 6; the model has 7"),
        (2, (7,), "given for 1 stages"),
    ],
)
def test_wrong_shares_are_refused(
    stages: int, shares: tuple[int, ...] | None, message: str
) -> None:
    """Too many stages, and blocks that are lost, are told with what the model has."""
    with pytest.raises(InputError, match=message):
        split_layers(OPERATIONS, stages, shares)
