"""Timelines read back from the files that this project writes: its timelines and its traces."""

from collections import defaultdict
from pathlib import Path

from diaulos.documents import Value, read_json
from diaulos.errors import InputError
from diaulos.schedules.actions import parse_action
from diaulos.schedules.events import Event
from diaulos.schedules.timeline import Timeline, read_timeline


def read_timeline_or_trace(path: Path) -> Timeline:
    """The timeline of a timeline file, or of a trace that holds one."""
    document = read_json(path)
    if "traceEvents" not in document.members():
        return read_timeline(path)
    timelines = _timelines(document)
    if len(timelines) != 1:
        raise InputError(
            f"holds the timelines {', '.join(timeline.name for timeline in timelines)}",
            "only one can be compared",
            "write a trace of one schedule, for example with diaulos simulate --schedule 2bw",
            where=str(path),
        )
    return timelines[0]


def _timelines(document: Value) -> list[Timeline]:
    """Those of a trace, in the order in which they were written."""
    members = document.members()
    if "otherData" not in members or "timelines" not in members["otherData"].members():
        raise document.error(
            "is a trace without otherData.timelines",
            "only traces that diaulos has written can be read back",
        )
    events = _events(members["traceEvents"])
    timelines = []
    for value in members["otherData"].members()["timelines"].items():
        known = value.fields(("pid", "name", "microbatches"))
        with value.context():
            timelines.append(
                Timeline(
                    name=known["name"].text(),
                    microbatches=known["microbatches"].integer(minimum=1),
                    events=tuple(events[known["pid"].integer()]),
                )
            )
    return timelines


def _events(trace: Value) -> dict[int, list[Event]]:
    """The slices of each process; counters, names and flows tell nothing new."""
    found: dict[int, list[Event]] = defaultdict(list)
    for value in trace.items():
        members = value.members()
        if "ph" not in members or members["ph"].raw != "X":
            continue
        for key in ("pid", "tid", "ts", "dur", "args"):
            if key not in members:
                raise value.error(f"lacks the key {key!r}", "a slice has a place and a time")
        start = members["ts"].number() / 1e6
        end = start + members["dur"].number() / 1e6
        text = members["args"].fields(("action",), tuple(members["args"].members()))["action"]
        with text.context():
            action = parse_action(text.text())
        rank = members["tid"].integer(minimum=0)
        found[members["pid"].integer()].append(Event(rank, action, start, end))
    return found
