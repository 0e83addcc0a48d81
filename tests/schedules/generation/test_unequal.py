"""Orders for stages of unequal data-parallel degrees."""

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generation.alternation import alternating
from diaulos.schedules.generation.completion import completed
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import simulate
from tests.schedules.shapes import shapes


def in_turn(schedule: Schedule) -> Schedule:
    """The same promises kept by one forward and one backward in turn."""
    shape, orders = schedule.shape, []
    for rank in range(shape.ranks):
        stage = shape.stage_of(rank)
        batches = [shape.microbatches_of(rank, batch) for batch in schedule.batch_numbers]
        streams = batches if schedule.is_flushed else [list(itertools.chain(*batches))]
        warm_up = shape.in_flight[stage] - 1
        orders.append(
            [
                (kind, stage, stream[index])
                for stream in streams
                for kind, _, index in alternating(stage, len(stream), warm_up)
            ]
        )
    return completed(replace(schedule, actions=()), orders)


def step_seconds(schedule: Schedule) -> float:
    """Of stages that keep up with each other: 3 seconds a microbatch at best."""
    costs = [StageCosts(forward_seconds=d, backward_seconds=2 * d) for d in schedule.shape.replicas]
    return simulate(schedule, costs, Link()).step_seconds


def makespan(schedule: Schedule) -> float:
    costs = [StageCosts(forward_seconds=d, backward_seconds=2 * d) for d in schedule.shape.replicas]
    return simulate(schedule, costs, Link()).makespan_seconds


@given(shape=shapes(5, 4))
@settings(max_examples=40)
def test_it_is_never_slower_than_taking_turns(shape: PipelineShape) -> None:
    """Of a run of three batches; within the same in-flight limits, as the checker proves."""
    for name in ("1f1b", "2bw"):
        schedule = generate(name, shape, 3)
        check(schedule)
        check(in_turn(schedule))
        assert makespan(schedule) <= makespan(in_turn(schedule))


def test_what_is_reached_with_degrees_1_2_1_4() -> None:
    """16 microbatches, 48 seconds at best: 2BW takes 54 instead of 72, 1F1B 72 instead of 78."""
    shape = PipelineShape(replicas=(1, 2, 1, 4), microbatches=16)
    reached = {name: generate(name, shape, 4) for name in ("2bw", "1f1b")}
    assert {name: step_seconds(schedule) for name, schedule in reached.items()} == {
        "2bw": 54.0,
        "1f1b": 72.0,
    }
    in_turns = {name: step_seconds(in_turn(schedule)) for name, schedule in reached.items()}
    assert in_turns == {"2bw": 72.0, "1f1b": 78.0}


def test_what_is_reached_with_degrees_1_2_1() -> None:
    """8 microbatches, 24 seconds at best: 2BW takes 30 instead of 36."""
    schedule = generate("2bw", PipelineShape(replicas=(1, 2, 1), microbatches=8), 4)
    assert (step_seconds(schedule), step_seconds(in_turn(schedule))) == (30.0, 36.0)


@given(shape=shapes(4, 3))
@settings(max_examples=20)
def test_halves_fill_what_whole_backwards_leave(shape: PipelineShape) -> None:
    """ZB-H1 is never slower than 1F1B, and holds at most what all replicas share."""
    halved, whole = generate("zb-h1", shape, 2), generate("1f1b", shape, 2)
    check(halved)
    assert makespan(halved) <= makespan(whole)
    for limit, degree in zip(halved.in_flight_limits, shape.replicas, strict=True):
        assert limit == min(-(-shape.ranks // degree), shape.microbatches // degree)


@given(degree=st.integers(1, 3), depth=st.integers(1, 4))
def test_equal_degrees_take_turns(degree: int, depth: int) -> None:
    """The order of the papers stays what it is."""
    shape = PipelineShape(replicas=(degree,) * depth, microbatches=degree * (depth + 1))
    for name in ("1f1b", "2bw"):
        schedule = generate(name, shape, 2)
        assert schedule.actions == in_turn(schedule).actions


@given(shape=shapes(3, 3))
@settings(max_examples=20)
def test_it_is_the_same_each_time(shape: PipelineShape) -> None:
    """Orders are deterministic."""
    for name in ("1f1b", "2bw"):
        assert generate(name, shape, 2) == generate(name, shape, 2)
