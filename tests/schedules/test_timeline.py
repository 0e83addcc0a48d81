"""What a timeline tells, and its file."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind, parse_action
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.events import Event
from diaulos.schedules.generators import generate
from diaulos.schedules.simulate import simulate
from diaulos.schedules.timeline import (
    MemoryPoint,
    Timeline,
    format_timeline,
    read_timeline,
    write_timeline,
)
from tests.schedules.shapes import line, schedules


def timeline(*events: tuple[int, str, float, float], microbatches: int = 1) -> Timeline:
    return Timeline(
        name="by hand",
        microbatches=microbatches,
        events=tuple(Event(rank, parse_action(text), *span) for rank, text, *span in events),
    )


TWO_RANKS = timeline(
    (0, "0F0@0", 10.0, 11.0),
    (1, "1F0@0", 11.0, 12.0),
    (1, "1B0@0", 12.0, 14.0),
    (0, "0B0@0", 14.0, 16.0),
    (0, "0UPDATE0", 16.0, 16.5),
    (1, "1UPDATE0", 16.0, 17.0),
    (0, "0F1@1", 16.5, 17.5),
    (1, "1F1@1", 17.5, 18.5),
    (1, "1B1@1", 18.5, 20.5),
    (0, "0B1@1", 20.5, 22.5),
)
"""Depth 2, one microbatch a batch, beginning at 10 s."""


def test_times_count_from_the_first_start() -> None:
    """Makespan, busy seconds, batch ends and step of a small timeline by hand."""
    assert TWO_RANKS.ranks == 2
    assert TWO_RANKS.start_seconds == 10.0
    assert TWO_RANKS.makespan_seconds == 12.5
    assert (TWO_RANKS.busy_seconds(0), TWO_RANKS.busy_seconds(1)) == (6.5, 7.0)
    assert TWO_RANKS.bubble_fraction == 1 - 13.5 / 25
    assert TWO_RANKS.batch_ends_seconds == (16.0, 22.5)
    assert TWO_RANKS.step_seconds == 6.5
    assert TWO_RANKS.step_bubble_fraction == max(1 - 13.5 / (2 * 2 * 6.5), 0)


def test_the_step_is_the_median_of_the_steps() -> None:
    """One slow batch does not change it; a single batch is its own step."""
    ends = [2.0, 4.0, 6.0, 60.0, 62.0]
    events = [(0, f"0B{batch}", end - 1, end) for batch, end in enumerate(ends)]
    assert timeline(*events).step_seconds == 2.0
    assert timeline((0, "0F0", 1.0, 2.0), (0, "0B0", 3.0, 5.0)).step_seconds == 4.0


def test_events_of_a_rank_are_in_the_order_of_time() -> None:
    """Whatever the order in which they were noted."""
    shuffled = timeline((0, "0B0", 3.0, 4.0), (1, "1F0", 2.0, 3.0), (0, "0F0", 0.0, 1.0))
    assert [str(event.action) for event in shuffled.of_rank(0)] == ["0F0", "0B0"]
    assert shuffled.peak_in_flight(0) == 1


def test_memory_is_zero_where_it_is_not_known() -> None:
    """A measured timeline holds no memory."""
    assert TWO_RANKS.peak_memory_bytes(0) == 0.0


def test_nothing_is_divided_by_zero() -> None:
    """Stages that take no time have no bubble."""
    instant = timeline((0, "0F0", 0.0, 0.0), (0, "0B0", 0.0, 0.0))
    assert (instant.bubble_fraction, instant.step_bubble_fraction) == (0.0, 0.0)
    with pytest.raises(InputError, match="a timeline has no events"):
        timeline()


@given(schedule=schedules())
def test_the_idle_share_lies_between_none_and_all(schedule) -> None:
    """Of any simulated schedule, over the run and within a step."""
    costs = [StageCosts(forward_seconds=1, backward_seconds=2)] * schedule.shape.stages
    simulated = simulate(schedule, costs, Link())
    assert 0.0 <= simulated.bubble_fraction < 1.0
    assert 0.0 <= simulated.step_bubble_fraction < 1.0


finite = st.floats(0, 1e12, allow_nan=False)
events = st.builds(
    Event,
    rank=st.integers(0, 9),
    action=st.builds(
        Action, st.integers(0, 9), st.sampled_from(Kind), st.integers(0, 99), st.none()
    ),
    start_seconds=finite,
    end_seconds=finite,
)
timelines = st.builds(
    Timeline,
    name=st.text(),
    microbatches=st.integers(1, 9),
    events=st.lists(events, min_size=1).map(tuple),
    memory=st.lists(st.builds(MemoryPoint, st.integers(0, 9), finite, finite)).map(tuple),
)


@given(whole=timelines)
@settings(max_examples=30)
def test_a_timeline_is_what_its_file_says(whole: Timeline, tmp_path_factory) -> None:
    """Reading a written timeline gives an equal one, to the last bit of its times."""
    path = tmp_path_factory.mktemp("timeline") / "timeline.json"
    write_timeline(path, whole)
    assert read_timeline(path) == whole


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), "other/1", r"\$\.format is 'other/1'; it must be 'diaulos.timeline/1'"),
        (("microbatches",), 0, r"\$\.microbatches is 0; it must be at least 1"),
        (("events", 0), [0, "0F0"], r"\$\.events\[0\] has 2 elements; it must have 4"),
        (("events", 1, 1), "hello", r"\$\.events\[1\]\[1\]: 'hello' is not an action"),
        (
            ("events", 0, 2),
            "now",
            r"\$\.events\[0\]\[2\] is a string \('now'\); it must be a number",
        ),
        (("memory", 0, 0), -1, r"\$\.memory\[0\]\[0\] is -1; it must be at least 0"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(
    place: tuple[str | int, ...], value: object, message: str, tmp_path: Path
) -> None:
    """Errors name the file, the path in it and the rule."""
    costs = StageCosts(forward_seconds=1, backward_seconds=1, fixed_bytes=1)
    document = format_timeline(simulate(generate("1f1b", line(1, 1), 1), [costs], Link()))
    document = json.loads(json.dumps(document))
    holder = document
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_timeline(path)
    assert "timeline.json" in str(caught.value)
