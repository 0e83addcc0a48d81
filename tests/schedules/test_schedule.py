"""The pipeline's shape, the promises of a schedule, and its text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.planning.plan import Plan, Stage
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule, format_actions, parse_actions
from diaulos.schedules.shape import PipelineShape
from tests.schedules.shapes import line, schedules, shapes


@given(schedule=schedules())
def test_actions_are_what_their_text_says(schedule: Schedule) -> None:
    """Parsing the printed rows of a schedule gives its actions."""
    assert parse_actions(format_actions(schedule)) == schedule.actions


def test_the_text_has_one_row_per_rank() -> None:
    """The text of a small schedule, in full."""
    text = format_actions(generate("1f1b", line(2, 1), 1))
    assert text == (
        "0F0@0,0SEND_F0,0RECV_B0,0B0@0,0REDUCE0,0UPDATE0\n"
        "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1REDUCE0,1UPDATE0\n"
    )


def test_a_wrong_text_is_named_with_its_row() -> None:
    """A cell that is no action is reported with the row it stands in; empty rows are rows."""
    with pytest.raises(InputError, match="row 1: 'what' is not an action"):
        parse_actions("0F0@0\n1F0@0,what\n")
    assert parse_actions("\n0F0@0\n")[0] == ()


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
    ("replicas", "microbatches", "message"),
    [
        ((), 4, "each stage has at least one replica"),
        ((1, 0), 4, "each stage has at least one replica"),
        ((1,), 0, "microbatches is 0; it must be at least 1"),
        ((1, 3), 8, "microbatches is 8 and stage 1 has 3 replicas.*9 microbatches would do"),
    ],
)
def test_impossible_shapes_are_refused(
    replicas: tuple[int, ...], microbatches: int, message: str
) -> None:
    """The value, the rule and a value that works are named."""
    with pytest.raises(InputError, match=message):
        PipelineShape(replicas=replicas, microbatches=microbatches)


@given(schedule=schedules(), microbatch=st.integers(0, 10**6))
def test_versions_follow_the_law(schedule: Schedule, microbatch: int) -> None:
    """Batch t computes with version max(t - delay, 0), of which delay + 1 are kept."""
    batch = math.floor(microbatch / schedule.shape.microbatches)
    for stage, delay in enumerate(schedule.gradient_delays):
        assert schedule.version_of(stage, microbatch) == max(batch - delay, 0)
        assert schedule.weight_versions[stage] == delay + 1
