"""The bound on a batch: never above the simulation, and met where stages are alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.judging.batch_bound import LeastCosts, least_batch_seconds
from diaulos.schedules.plans import plan_simulator
from diaulos.schedules.shape import PipelineShape

SCHEDULES = st.sampled_from(("gpipe", "1f1b", "zb-h1"))
AMOUNTS = st.integers(0, 8).map(lambda number: number / 4)


@st.composite
def costs(draw: st.DrawFn) -> StageCosts:
    backward = draw(AMOUNTS)
    return StageCosts(
        forward_seconds=draw(AMOUNTS),
        backward_seconds=backward,
        weight_backward_seconds=backward * draw(st.sampled_from((0.0, 0.3, 0.5, 1.0))),
        update_seconds=draw(AMOUNTS),
        reduce_seconds=draw(AMOUNTS),
        output_bytes=draw(AMOUNTS),
    )


def bound(
    schedule: str, shape: PipelineShape, choices: list[list[StageCosts]], link: Link
) -> float:
    """With the numbers in flight that the schedule promises."""
    generated = plan_simulator(schedule, shape, 1).schedule
    return least_batch_seconds(
        [LeastCosts.of(some, is_halved=schedule == "zb-h1") for some in choices],
        [link] * (shape.depth - 1),
        local_microbatches=[shape.microbatches // d for d in shape.replicas],
        in_flight=generated.in_flight_limits,
    )


@given(st.data(), SCHEDULES)
def test_no_simulation_is_faster(data: st.DataObject, schedule: str) -> None:
    """Stages of any degrees, links with latency, and whichever of two choices each stage takes."""
    replicas = tuple(data.draw(st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=4)))
    shape = PipelineShape(replicas=replicas, microbatches=data.draw(st.sampled_from((6, 12))))
    link = Link(latency_seconds=data.draw(AMOUNTS), bandwidth_bytes_per_second=2.0)
    choices = [[data.draw(costs()) for _ in range(2)] for _ in replicas]
    taken = [some[data.draw(st.integers(0, 1))] for some in choices]
    seconds = plan_simulator(schedule, shape, 1).makespan_seconds(taken, link)
    both = bound(schedule, shape, choices, link)
    mine = bound(schedule, shape, [[cost] for cost in taken], link)
    assert both <= mine + 1e-9
    assert mine <= seconds + 1e-9


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_equal_stages_meet_it(schedule: str) -> None:
    """(m + depth - 1)(F + B), the closed form of both schedules."""
    shape = PipelineShape(replicas=(2, 2, 2), microbatches=16)
    cost = StageCosts(forward_seconds=1.0, backward_seconds=2.0, output_bytes=0.0)
    assert bound(schedule, shape, [[cost]] * 3, Link()) == (8 + 2) * 3.0


def test_a_batch_on_one_stage() -> None:
    """All microbatches, the reduction, and the update."""
    shape = PipelineShape(replicas=(2,), microbatches=8)
    cost = StageCosts(
        forward_seconds=1.0, backward_seconds=2.0, reduce_seconds=5.0, update_seconds=0.5
    )
    assert bound("1f1b", shape, [[cost]], Link()) == 4 * 3.0 + 5.0 + 0.5
