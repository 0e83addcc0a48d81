"""Which rank holds which stages and runs which microbatches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.planning.plan import Plan, Stage
from diaulos.schedules.shape import PipelineShape
from tests.schedules.shapes import line, shapes

any_shapes = st.builds(
    PipelineShape,
    replicas=st.tuples(st.integers(1, 3), st.integers(1, 5)).map(lambda pair: pair[:1] * pair[1]),
    microbatches=st.just(6),
    chunks=st.integers(1, 4),
    folded=st.booleans(),
)


@given(shape=shapes(), batch=st.integers(0, 5))
def test_each_stage_shares_a_batch_among_its_replicas(shape: PipelineShape, batch: int) -> None:
    """Every microbatch of a batch runs once per stage, on replica j mod d."""
    first = batch * shape.microbatches
    for stage, degree in enumerate(shape.replicas):
        seen = []
        for replica, rank in enumerate(shape.ranks_of(stage)):
            assert (shape.stage_of(rank), shape.replica_of(rank)) == (stage, replica)
            for microbatch in shape.microbatches_of(rank, batch):
                assert (microbatch - first) % degree == replica
                assert shape.rank_of(stage, microbatch) == rank
                seen.append(microbatch)
        assert sorted(seen) == list(range(first, first + shape.microbatches))


@given(shape=any_shapes)
def test_every_stage_is_held_once(shape: PipelineShape) -> None:
    """The stages of the positions are all stages, as many on each, and their ranks hold them."""
    held = [shape.stages_of(rank) for rank in range(shape.ranks) if shape.replica_of(rank) == 0]
    assert sorted(stage for stages in held for stage in stages) == list(range(shape.stages))
    assert {len(stages) for stages in held} == {shape.chunks}
    for stage in range(shape.stages):
        for rank in shape.ranks_of(stage):
            assert stage in shape.stages_of(rank)
            assert shape.homes[stage] == shape.position_of(rank)


def test_a_loop_and_a_v() -> None:
    """Stage s stands on position s mod d; folded, the second chunk runs back."""
    assert line(3, 1, chunks=3).homes == (0, 1, 2, 0, 1, 2, 0, 1, 2)
    assert line(3, 1, chunks=2, folded=True).homes == (0, 1, 2, 2, 1, 0)
    assert line(3, 1, chunks=3, folded=True).homes == (0, 1, 2, 2, 1, 0, 0, 1, 2)


def test_the_turn_of_a_v_needs_no_message() -> None:
    """Stages that follow each other on one rank pass nothing to another rank."""
    shape = line(2, 1, chunks=2, folded=True)
    assert [shape.is_handed_over(stage) for stage in range(4)] == [True, False, True, False]
    assert [line(1, 1, chunks=3).is_handed_over(stage) for stage in range(3)] == [False] * 3


@given(shape=shapes())
def test_ranks_are_numbered_stage_by_stage(shape: PipelineShape) -> None:
    """The ranks of the stages follow each other without gaps."""
    ranks = [rank for stage in range(shape.stages) for rank in shape.ranks_of(stage)]
    assert ranks == list(range(shape.ranks))


@given(depth=st.integers(1, 20), width=st.integers(1, 4))
def test_equal_stages_have_depth_minus_index_in_flight(depth: int, width: int) -> None:
    """Stage r of d holds d - r microbatches, whatever the width."""
    shape = PipelineShape(replicas=(width,) * depth, microbatches=width)
    assert shape.in_flight == tuple(range(depth, 0, -1))


@given(shape=shapes())
def test_a_plan_counts_in_flight_alike(shape: PipelineShape) -> None:
    """What the planner pays memory for is what the schedule holds."""
    stages = tuple(
        Stage(layers=(i,), data_parallel=degree, tensor_parallel=1, options={i: "plain"})
        for i, degree in enumerate(shape.replicas)
    )
    assert Plan(stages=stages, microbatches=shape.microbatches).in_flight == shape.in_flight


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replicas": (), "microbatches": 4}, "each stage has at least one replica"),
        ({"replicas": (1, 0), "microbatches": 4}, "each stage has at least one replica"),
        ({"replicas": (1,), "microbatches": 0}, "microbatches is 0; it must be at least 1"),
        (
            {"replicas": (1, 3), "microbatches": 8},
            "microbatches is 8 and stage 1 has 3 replicas.*9 microbatches would do",
        ),
        (
            {"replicas": (1,), "microbatches": 1, "chunks": 0},
            "chunks is 0; it must be at least 1",
        ),
    ],
)
def test_impossible_shapes_are_refused(fields: dict, message: str) -> None:
    """The value, the rule and a value that works are named."""
    with pytest.raises(InputError, match=message):
        PipelineShape(**fields)
