"""Where a run differs from its plan."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.actions import Kind
from diaulos.schedules.analysis.difference import TimeDifference, difference
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.events import Event
from diaulos.schedules.generators import generate
from diaulos.schedules.simulate import simulate
from diaulos.schedules.timeline import Timeline
from tests.reporting.runs import jittery, simulated
from tests.schedules.shapes import line, schedules


def found_time(times: tuple[TimeDifference, ...], stage: int, kind: Kind | None) -> TimeDifference:
    return next(time for time in times if stage in time.stages and time.kind is kind)


def computations(timeline: Timeline, rank: int) -> list[Event]:
    return [event for event in timeline.of_rank(rank) if event.action.kind.is_compute]


def exchanged(timeline: Timeline, rank: int, place: int) -> Timeline:
    """The timeline with a rank's computation at a place and the one after that exchanged."""
    first, second = computations(timeline, rank)[place : place + 2]
    swapped = {
        first: first._replace(action=second.action),
        second: second._replace(action=first.action),
    }
    return replace(timeline, events=tuple(swapped.get(event, event) for event in timeline.events))


def test_a_run_as_planned_differs_in_nothing() -> None:
    """The same timeline twice: all times are equal, the order is as planned."""
    timeline = simulated("2bw", 3, 3)
    found = difference(timeline, timeline)
    assert found.is_as_planned
    assert found.excess_seconds == 0
    assert all(time.excess_seconds == 0 and not time.relative for time in found.times)
    kinds = [(time.stages, time.kind) for time in found.times]
    assert kinds == [
        ((stage,), kind)
        for stage in range(3)
        for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE, None)
    ]


@settings(max_examples=40, deadline=None)
@given(schedule=schedules(), seed=st.integers(0, 99))
def test_a_slower_run_in_the_same_order_is_as_planned(schedule, seed: int) -> None:
    """Only times differ, whatever the schedule, the replicas and the stages of a rank."""
    cost = StageCosts(forward_seconds=1.0, backward_seconds=2.0)
    planned = simulate(schedule, [cost] * schedule.shape.stages, Link())
    found = difference(planned, jittery(planned, seed))
    assert found.is_as_planned
    for time in found.times:
        if time.kind is not None and time.kind.is_compute:
            assert 0 <= time.relative <= 0.21


def test_a_slow_stage_is_found_with_what_it_adds_to_a_step() -> None:
    """Backwards of stage 1 take 3 s instead of 2, and 1F1B's step of 4 microbatches grows."""
    planned = simulated("1f1b", 2, 4)
    usual = StageCosts(forward_seconds=1.0, backward_seconds=2.0)
    slow = StageCosts(forward_seconds=1.0, backward_seconds=3.0)
    measured = simulate(generate("1f1b", line(2, 4), 3), [usual, slow], Link())
    found = difference(planned, measured)
    assert found.is_as_planned
    backward = found_time(found.times, 1, Kind.BACKWARD)
    assert (backward.planned_seconds, backward.measured_seconds) == (2.0, 3.0)
    assert backward.relative == 0.5
    assert backward.excess_seconds == 4 * 1.0
    assert found_time(found.times, 0, Kind.BACKWARD).excess_seconds == 0
    assert found.excess_seconds == 4.0
    assert found_time(found.times, 0, None).excess_seconds == 4.0


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "2bw", "zb-h1"])
def test_the_parts_of_a_stage_sum_up_to_the_step(name: str) -> None:
    """Where nothing but the plan's times is slower, actions and waiting explain all of it."""
    planned = simulated(name, 3, 6, batches=1)
    measured = simulated(name, 3, 6, batches=1, forward_seconds=1.5, backward_seconds=2.25)
    found = difference(planned, measured)
    for stage in range(3):
        parts = [time.excess_seconds for time in found.times if time.stages == (stage,)]
        assert sum(parts) == pytest.approx(found.excess_seconds)


@settings(max_examples=40, deadline=None)
@given(schedule=schedules(), data=st.data())
def test_the_first_exchanged_computation_is_named(schedule, data: st.DataObject) -> None:
    """Two neighbouring computations exchanged: rank, place and both of them are told."""
    cost = StageCosts(forward_seconds=1.0, backward_seconds=2.0)
    planned = simulate(schedule, [cost] * schedule.shape.stages, Link())
    rank = data.draw(st.integers(0, planned.ranks - 1))
    row = computations(planned, rank)
    place = data.draw(st.integers(0, len(row) - 2))
    found = difference(planned, exchanged(planned, rank, place))
    assert not found.is_as_planned
    (order,) = found.orders
    assert (order.rank, order.place) == (rank, place)
    assert (order.planned, order.measured) == (row[place].action, row[place + 1].action)


@pytest.mark.parametrize("name", ["1f1b", "2bw", "zb-h1"])
def test_a_longer_run_is_compared_over_what_both_have(name: str) -> None:
    """A plan of 2 batches beside a run of 5 is in order, the plan's drain included."""
    found = difference(simulated(name, 3, 3, batches=2), simulated(name, 3, 3, batches=5))
    assert found.is_as_planned
    assert found_time(found.times, 0, Kind.FORWARD).excess_seconds == 0


def test_what_is_missing_or_computed_otherwise_is_named() -> None:
    """Backwards in halves instead of whole, or other weights, are not as planned."""
    planned = simulated("1f1b", 2, 2, batches=1)
    halves = difference(planned, simulated("zb-h1", 2, 2, batches=1))
    assert [str(action) for action in halves.only_planned] == ["0B0@0", "0B1@0", "1B0@0", "1B1@0"]
    assert len(halves.only_measured) == 8
    later = tuple(
        event._replace(action=event.action._replace(version=1))
        if event.action.kind is Kind.BACKWARD
        else event
        for event in planned.events
    )
    versions = difference(planned, replace(planned, events=later))
    assert not versions.orders
    assert [(str(a), str(b)) for a, b in versions.other_versions][:1] == [("0B0@0", "0B0@1")]


def test_timelines_of_other_pipelines_are_refused() -> None:
    """What differs is named: ranks, microbatches or the stages of a rank."""
    planned = simulated("1f1b", 2, 2)
    with pytest.raises(InputError, match="ranks: 2 planned and 3 measured"):
        difference(planned, simulated("1f1b", 3, 2))
    with pytest.raises(InputError, match="microbatches a batch: 2 planned and 4 measured"):
        difference(planned, simulated("1f1b", 2, 4))
    moved = [Event(1 - e.rank, *e[1:]) for e in planned.events]
    with pytest.raises(InputError, match="stages by rank"):
        difference(planned, replace(planned, events=tuple(moved)))
