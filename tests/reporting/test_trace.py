"""Traces for Perfetto."""

import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.reporting.trace import trace_document, write_trace
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.events import Event
from diaulos.schedules.generators import generate
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import simulate
from diaulos.schedules.timeline import Timeline
from tests.reporting.runs import jittery, simulated

PLANNED = simulated("2bw", 3, 3, batches=3, activation_bytes=10.0, fixed_bytes=100.0)


def of_kind(document: dict, phase: str) -> list[dict]:
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def test_timelines_are_processes_and_ranks_are_threads() -> None:
    """Planned and measured are named, in order, each with its stages."""
    document = trace_document([PLANNED, jittery(PLANNED)], ["planned", "measured"])
    names = [
        (e["pid"], e["name"], e["args"]) for e in of_kind(document, "M") if "name" in e["args"]
    ]
    for pid, title in ((1, "planned"), (2, "measured")):
        assert (pid, "process_name", {"name": title}) in names
        for stage in range(3):
            assert (pid, "thread_name", {"name": f"stage {stage}"}) in names


def test_every_event_is_a_slice_in_microseconds() -> None:
    """Times begin at 0, also where a measured clock counts from another day."""
    document = trace_document([PLANNED, jittery(PLANNED)])
    slices = of_kind(document, "X")
    assert len(slices) == 2 * len(PLANNED.events)
    for pid in (1, 2):
        assert min(e["ts"] for e in slices if e["pid"] == pid) == 0
    found = next(e for e in slices if e["args"]["action"] == "0B6@1" and e["pid"] == 1)
    event = next(e for e in PLANNED.events if str(e.action) == "0B6@1")
    assert found["ts"] == event.start_seconds * 1e6
    assert found["dur"] == 2e6
    assert found["name"] == "backward 6"
    assert found["args"] == {"action": "0B6@1", "batch": 2, "weight version": 1}
    update = next(e for e in slices if e["args"]["action"] == "0UPDATE1")
    assert update["args"] == {"action": "0UPDATE1", "batch": 1, "makes version": 2}


seconds = st.floats(0, 1e-4)


@given(gaps=st.lists(st.tuples(seconds, seconds), min_size=1, max_size=20), start=st.floats(0, 2e9))
def test_slices_of_a_track_never_overlap(gaps: list[tuple[float, float]], start: float) -> None:
    """Rounding is cut off: each slice ends before the next begins, whatever the clock shows."""
    events, now = [], start
    for number, (wait, duration) in enumerate(gaps):
        events.append(Event(0, Action(0, Kind.FORWARD, number), now + wait, now + wait + duration))
        now = now + wait + duration
    document = trace_document([Timeline(name="x", microbatches=1, events=tuple(events))])
    slices = of_kind(document, "X")
    assert [e["args"]["action"] for e in slices] == [f"0F{n}" for n in range(len(gaps))]
    for before, after in itertools.pairwise(slices):
        assert round(1000 * (before["ts"] + before["dur"])) <= round(1000 * after["ts"])
        assert before["dur"] >= 0


def test_sends_are_flows_between_neighbours() -> None:
    """Forwards lead to the next stage, backwards to the one before; both ends lie in slices."""
    document = trace_document([PLANNED])
    ends = defaultdict(dict)
    for phase in ("s", "f"):
        for event in of_kind(document, phase):
            ends[event["id"]][phase] = event
    microbatches = 3 * 3
    assert len(ends) == 2 * microbatches * (3 - 1)
    slices = of_kind(document, "X")
    for flow in ends.values():
        start, finish = flow["s"], flow["f"]
        step = 1 if start["name"] == "send forward" else -1
        assert finish["tid"] == start["tid"] + step
        assert finish["bp"] == "e"
        inside = [
            [
                e
                for e in slices
                if e["tid"] == end["tid"] and e["ts"] <= end["ts"] < e["ts"] + e["dur"]
            ]
            for end in (start, finish)
        ]
        assert [len(found) for found in inside] == [1, 1]
        assert inside[0][0]["name"] == inside[1][0]["name"]


def test_gradients_flow_between_whole_and_halved_backwards() -> None:
    """Where a schedule mixes both, each backward hands its gradient to what the next stage does."""
    shape = PipelineShape(replicas=(1,) * 4, microbatches=8, chunks=2, folded=True)
    costs = [StageCosts(forward_seconds=1.0, backward_seconds=2.0)] * 8
    mixed = simulate(generate("dualpipe-v", shape, 1), costs, Link())
    kinds = {event.action.kind for event in mixed.events}
    assert {Kind.BACKWARD, Kind.INPUT_BACKWARD} <= kinds
    starts, finishes = (of_kind(trace_document([mixed]), phase) for phase in ("s", "f"))
    assert Counter(e["id"] for e in starts) == Counter(e["id"] for e in finishes)
    # Of the 7 borders one lies within the last rank, and nothing is sent there.
    assert len(starts) == 2 * 8 * 6
    places = {e["id"]: e["tid"] for e in starts}
    assert all(abs(e["tid"] - places[e["id"]]) == 1 for e in finishes)


@pytest.mark.parametrize("name", ["1f1b", "2bw", "zb-h1"])
def test_a_trace_is_well_formed(name: str) -> None:
    """Names come first, then all by time; flows pair up, each end with its process and thread."""
    planned = simulated(name, 3, 3, batches=2, activation_bytes=1.0)
    document = trace_document([planned, jittery(planned)], ["planned", "measured"])
    events = document["traceEvents"]
    moments = [event.get("ts", -1.0) for event in events]
    assert moments == sorted(moments)
    assert all("ts" in event for event in events if event["ph"] != "M")
    assert {event["ph"] for event in events} == {"M", "X", "s", "f", "C"}
    ids = {phase: Counter(e["id"] for e in of_kind(document, phase)) for phase in "sf"}
    assert ids["s"] == ids["f"]
    assert set(ids["s"].values()) == {1}
    threads = {(e["pid"], e["tid"]) for e in of_kind(document, "X")}
    assert {(e["pid"], e["tid"]) for phase in "sf" for e in of_kind(document, phase)} <= threads


def test_flows_find_replicas() -> None:
    """With two replicas a microbatch stays with those that run it."""
    document = trace_document([simulated("1f1b", 2, 2, width=2, batches=1)])
    pairs = {(e["ph"], e["name"], e["tid"]) for e in document["traceEvents"] if e["ph"] in "sf"}
    assert {tid for ph, name, tid in pairs if ph == "s" and name == "send forward"} == {0, 1}
    assert {tid for ph, name, tid in pairs if ph == "f" and name == "send forward"} == {2, 3}


def test_memory_is_a_counter_per_rank() -> None:
    """What each rank holds over time; a measured timeline has none."""
    document = trace_document([PLANNED, jittery(PLANNED)])
    counters = of_kind(document, "C")
    assert {event["pid"] for event in counters} == {1}
    peak = max(e["args"]["bytes"] for e in counters if e["name"] == "memory of stage 0")
    assert peak == 100 + 3 * 10
    assert len(counters) == len(PLANNED.memory)


def test_ids_of_flows_are_unique_over_timelines() -> None:
    """Two timelines in one trace do not share a flow."""
    document = trace_document([PLANNED, PLANNED])
    starts = [event["id"] for event in of_kind(document, "s")]
    assert len(starts) == len(set(starts))


def test_a_trace_is_written_as_json(tmp_path: Path) -> None:
    """The file holds the document, compact."""
    path = tmp_path / "deep" / "trace.json"
    write_trace(path, [PLANNED], ["planned"])
    assert json.loads(path.read_text(encoding="utf-8")) == trace_document([PLANNED], ["planned"])


def test_titles_and_timelines_must_pair() -> None:
    """A title too few is an error of the caller."""
    with pytest.raises(ValueError, match="zip"):
        trace_document([PLANNED, PLANNED], ["planned"])
