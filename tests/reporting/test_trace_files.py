"""Timelines read back from files."""

import json
from pathlib import Path

import pytest

from diaulos.errors import InputError
from diaulos.reporting.trace import trace_document, write_trace
from diaulos.reporting.trace_files import read_timeline_or_trace
from diaulos.schedules.timeline import Timeline, write_timeline
from tests.reporting.runs import jittery, simulated


def rows(timeline: Timeline) -> list[list[str]]:
    return [[str(e.action) for e in timeline.of_rank(rank)] for rank in range(timeline.ranks)]


@pytest.mark.parametrize("name", ["1f1b", "2bw", "zb-h1", "pipedream"])
def test_a_trace_is_read_back(tmp_path: Path, name: str) -> None:
    """Every rank does the same in the same order, and times are the same to the nanosecond."""
    for timeline in (simulated(name, 3, 3), jittery(simulated(name, 3, 3))):
        write_trace(tmp_path / "t.json", [timeline], ["measured"])
        found = read_timeline_or_trace(tmp_path / "t.json")
        assert (found.name, found.microbatches) == ("measured", timeline.microbatches)
        assert rows(found) == rows(timeline)
        for rank in range(3):
            expected = [e.start_seconds - timeline.start_seconds for e in timeline.of_rank(rank)]
            assert [e.start_seconds for e in found.of_rank(rank)] == pytest.approx(
                expected, abs=1e-6
            )


def test_a_timeline_is_read_as_such(tmp_path: Path) -> None:
    """The project's own form needs no other command."""
    timeline = simulated("2bw", 2, 2)
    write_timeline(tmp_path / "t.json", timeline)
    assert read_timeline_or_trace(tmp_path / "t.json") == timeline


def test_a_trace_of_several_is_refused(tmp_path: Path) -> None:
    """The names are told, and how to get a trace of one."""
    write_trace(tmp_path / "t.json", [simulated("2bw", 2, 2), simulated("1f1b", 2, 2)])
    with pytest.raises(InputError, match=r"holds the timelines 2bw, 1f1b; .* --schedule 2bw"):
        read_timeline_or_trace(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"otherData": {}}, "a trace without otherData.timelines"),
        ({"traceEvents": [{"ph": "X", "pid": 1}]}, r"\$.traceEvents\[0\] lacks the key 'tid'"),
        ({"traceEvents": []}, "a timeline has no events"),
    ],
)
def test_a_trace_of_others_is_refused(tmp_path: Path, broken: dict, message: str) -> None:
    """The place and the rule are named."""
    document = trace_document([simulated("1f1b", 2, 2)]) | broken
    (tmp_path / "t.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_timeline_or_trace(tmp_path / "t.json")
