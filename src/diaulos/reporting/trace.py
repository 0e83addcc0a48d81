"""Traces for Perfetto (ui.perfetto.dev) and chrome://tracing.

Each timeline is a process and each rank a thread of it. Computations and updates are slices,
memory is a counter, and a flow leads over each link that is used: from a forward to that of the
next stage on another rank, from a backward to that of the stage before. `trace_files` reads
timelines back.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from diaulos.documents import write_text
from diaulos.reporting.colours import KIND_NAMES
from diaulos.reporting.labels import rank_labels
from diaulos.reporting.window import shifted_events
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.events import Event
from diaulos.schedules.timeline import Timeline

_STEPS = {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.INPUT_BACKWARD: -1}
"""To which stage from its own a computation hands its result."""


def trace_document(
    timelines: Sequence[Timeline], titles: Sequence[str] | None = None
) -> dict[str, Any]:
    """The trace of one or several timelines, each beginning at 0; its events in order of time."""
    titles = titles or [timeline.name for timeline in timelines]
    events: list[dict[str, Any]] = []
    known = []
    for process, (title, timeline) in enumerate(zip(titles, timelines, strict=True), start=1):
        events += _trace_timeline(process, title, timeline)
        known.append({"pid": process, "name": title, "microbatches": timeline.microbatches})
    events.sort(key=lambda event: event.get("ts", -1.0))
    return {"displayTimeUnit": "ms", "otherData": {"timelines": known}, "traceEvents": events}


def write_trace(
    path: Path, timelines: Sequence[Timeline], titles: Sequence[str] | None = None
) -> None:
    """Write the trace of one or several timelines."""
    document = trace_document(timelines, titles)
    write_text(path, json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n")


def _trace_timeline(process: int, title: str, timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield _named(process, 0, "process_name", name=title)
    yield _named(process, 0, "process_sort_index", sort_index=process)
    slices: dict[Action, dict[str, Any]] = {}
    for rank, label in rank_labels(timeline).items():
        yield _named(process, rank, "thread_name", name=label)
        yield _named(process, rank, "thread_sort_index", sort_index=rank)
        for action, found in _slices(process, timeline, rank):
            slices[action] = found
            yield found
    yield from _flows(process, slices)
    yield from _memory(process, timeline)


def _named(process: int, thread: int, what: str, **arguments: object) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": arguments}


def _slices(process: int, timeline: Timeline, rank: int) -> Iterator[tuple[Action, dict[str, Any]]]:
    """A rank's events without overlaps: what rounding lets reach into the next one is cut off."""
    events = shifted_events(timeline, rank)
    starts = [_nanoseconds(event.start_seconds) for event in events]
    for index, (event, start) in enumerate(zip(events, starts, strict=True)):
        end = max(_nanoseconds(event.end_seconds), start)
        if index + 1 < len(starts):
            end = min(end, starts[index + 1])
        yield (
            event.action,
            {
                "ph": "X",
                "pid": process,
                "tid": rank,
                "name": f"{KIND_NAMES[event.action.kind]} {event.action.number}",
                "cat": KIND_NAMES[event.action.kind],
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "args": _arguments(event, timeline.microbatches),
            },
        )


def _arguments(event: Event, microbatches: int) -> dict[str, Any]:
    action = event.action
    if action.kind is Kind.UPDATE:
        return {"action": str(action), "batch": action.number, "makes version": action.number + 1}
    return {
        "action": str(action),
        "batch": action.number // microbatches,
        "weight version": action.version,
    }


def _flows(process: int, slices: dict[Action, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """From each computation to the one on the neighbouring stage that takes its result."""
    by_place = {(a.kind, a.stage, a.number): found for a, found in slices.items()}
    for number, ((kind, stage, microbatch), source) in enumerate(by_place.items()):
        step = _STEPS.get(kind, 0)
        target = _taker(by_place, kind, stage + step, microbatch)
        if step == 0 or target is None or target["tid"] == source["tid"]:
            continue
        flow = {"pid": process, "cat": "send", "name": f"send {KIND_NAMES[kind]}"}
        flow["id"] = f"{process}.{number}"
        # A flow begins inside a slice, and the end of a slice is outside of it.
        leaving = max(source["ts"], round(source["ts"] + source["dur"] - 0.001, 3))
        yield {"ph": "s", "tid": source["tid"], "ts": leaving, **flow}
        yield {"ph": "f", "bp": "e", "tid": target["tid"], "ts": target["ts"], **flow}


def _taker(
    by_place: dict[tuple[Kind, int, int], dict[str, Any]], kind: Kind, stage: int, microbatch: int
) -> dict[str, Any] | None:
    """What takes the result; a gradient goes to a whole backward or to the first half of one."""
    if kind is Kind.FORWARD:
        return by_place.get((kind, stage, microbatch))
    whole = by_place.get((Kind.BACKWARD, stage, microbatch))
    return whole or by_place.get((Kind.INPUT_BACKWARD, stage, microbatch))


def _memory(process: int, timeline: Timeline) -> Iterator[dict[str, Any]]:
    labels = rank_labels(timeline)
    for point in timeline.memory:
        moment = max(point.seconds - timeline.start_seconds, 0.0)
        yield {
            "ph": "C",
            "pid": process,
            "name": f"memory of {labels.get(point.rank, f'rank {point.rank}')}",
            "ts": _nanoseconds(moment) / 1000,
            "args": {"bytes": point.bytes},
        }


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
