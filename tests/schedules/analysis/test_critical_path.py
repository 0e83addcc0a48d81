"""The chain of events that makes a timeline as long as it is."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.schedules.analysis.critical_path import critical_path
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.simulate import simulate
from tests.schedules.shapes import line, schedules


@given(schedule=schedules(3, 2), data=st.data())
@settings(max_examples=40)
def test_without_a_link_the_path_has_no_gaps(schedule: Schedule, data: st.DataObject) -> None:
    """It leads from the first start to the last end, each event starting where one ended."""
    seconds = st.integers(1, 9).map(float)
    costs = [
        StageCosts(
            forward_seconds=data.draw(seconds),
            backward_seconds=data.draw(seconds),
            update_seconds=data.draw(seconds),
        )
        for _ in range(schedule.shape.stages)
    ]
    timeline = simulate(schedule, costs, Link())
    path = critical_path(schedule, timeline)
    assert path[0].start_seconds == timeline.start_seconds
    assert path[-1].end_seconds == timeline.start_seconds + timeline.makespan_seconds
    assert all(before.end_seconds == after.start_seconds for before, after in pairwise(path))
    assert sum(event.seconds for event in path) == timeline.makespan_seconds


def test_gaps_are_messages() -> None:
    """One microbatch through two stages and back, half a second each way."""
    costs = [StageCosts(forward_seconds=1, backward_seconds=2)] * 2
    schedule = generate("1f1b", line(2, 1), 1)
    timeline = simulate(schedule, costs, Link(latency_seconds=0.5))
    path = critical_path(schedule, timeline)
    texts = [str(event.action) for event in path]
    assert texts[:4] == ["0F0@0", "1F0@0", "1B0@0", "0B0@0"]
    gaps = [after.start_seconds - before.end_seconds for before, after in pairwise(path)]
    assert gaps[:3] == [0.5, 0.0, 0.5]


def test_the_path_goes_through_the_slow_stage() -> None:
    """Most of it are computations of the stage that all others wait for."""
    fast = StageCosts(forward_seconds=1, backward_seconds=2)
    slow = StageCosts(forward_seconds=2, backward_seconds=4)
    schedule = generate("1f1b", line(3, 12), 1)
    path = critical_path(schedule, simulate(schedule, [fast, slow, fast], Link()))
    assert sum(event.action.stage == 1 for event in path) > 20
