"""What a page of schedules shows, as plain data for its script.

Times are seconds from the first start of a timeline, rounded to a ten-millionth of its whole.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from diaulos.reporting.colours import (
    IDLE,
    INK,
    KIND_NAMES,
    MUTED,
    PAPER,
    SHADES,
    VERSION_BANDS,
    fill,
)
from diaulos.reporting.labels import rank_labels, ranks_by_stage
from diaulos.reporting.window import shifted_events
from diaulos.schedules.actions import Kind
from diaulos.schedules.events import Event
from diaulos.schedules.timeline import Timeline

LETTERS = {kind: kind.value[0] for kind in KIND_NAMES}
"""How the data call what a rank does: F, B, I, W, and U for an update."""
HELD = (("always held", "#d0d7de"), ("further versions", "#8c959f"), ("activations", "#009e73"))
"""What a rank's memory is made of, from below, and the colours of the curves."""
LIMIT_COLOUR = "#c4204a"
_DIGITS = 7
"""Of the whole time; finer than a pixel at any zoom that shows something."""


def page_data(
    timelines: Sequence[Timeline],
    titles: Sequence[str],
    numbers: Sequence[str],
    *,
    memory_limit_bytes: float = math.inf,
) -> dict[str, Any]:
    """The document that the script draws; `numbers` are a sentence on each timeline."""
    return {
        "colours": {"ink": INK, "muted": MUTED, "idle": IDLE, "paper": PAPER},
        "bands": VERSION_BANDS,
        "kinds": {LETTERS[kind]: name for kind, name in KIND_NAMES.items()},
        "held": HELD,
        "limit_colour": LIMIT_COLOUR,
        "limit": memory_limit_bytes if math.isfinite(memory_limit_bytes) else None,
        "panels": [
            _panel(timeline, title, sentence)
            for timeline, title, sentence in zip(timelines, titles, numbers, strict=True)
        ],
    }


def _panel(timeline: Timeline, title: str, sentence: str) -> dict[str, Any]:
    labels = rank_labels(timeline)
    chunks = max(len(timeline.stages_of(rank)) for rank in labels)
    fills = {
        LETTERS[kind]: [[found.box, found.text] for found in _fills(kind, chunks)]
        for kind in SHADES
    }
    ranks = [rank for of_stage in ranks_by_stage(timeline) for rank in of_stage]
    return {
        "title": title,
        "numbers": sentence,
        "seconds": timeline.makespan_seconds,
        "microbatches": timeline.microbatches,
        "fills": fills,
        "unit": "bytes" if timeline.memory else "in flight",
        "rows": [_row(timeline, rank, labels[rank]) for rank in ranks],
    }


def _fills(kind: Kind, chunks: int) -> Iterator[Any]:
    return (fill(kind, chunk, chunks) for chunk in range(chunks))


def _row(timeline: Timeline, rank: int, label: str) -> dict[str, Any]:
    """A rank's events as columns, in the order of time, and the curve of what it holds."""
    events, stages = shifted_events(timeline, rank), timeline.stages_of(rank)
    digits = _DIGITS - math.ceil(math.log10(timeline.makespan_seconds or 1.0))
    row = {
        "label": label,
        "rank": rank,
        "stages": stages,
        "kinds": "".join(LETTERS[event.action.kind] for event in events),
        "chunks": [stages.index(event.action.stage) for event in events],
        "numbers": [event.action.number for event in events],
        "versions": [event.action.version for event in events],
        "starts": [round(event.start_seconds, digits) for event in events],
        "ends": [round(event.end_seconds, digits) for event in events],
    }
    points = list(_bytes(timeline, rank) if timeline.memory else _in_flight(events, len(stages)))
    row["moments"] = [round(seconds, digits) for seconds, _ in points]
    row["amounts"] = [amount for _, amount in points]
    held = timeline.resident[rank] if timeline.resident else None
    row["always"] = [held.fixed_bytes, held.versions_bytes] if held else [0, 0]
    return row


def _bytes(timeline: Timeline, rank: int) -> Iterator[tuple[float, float]]:
    for point in timeline.memory:
        if point.rank == rank:
            yield max(point.seconds - timeline.start_seconds, 0.0), point.bytes


def _in_flight(events: Sequence[Event], chunks: int) -> Iterator[tuple[float, float]]:
    """Where bytes are not known, microbatches; one on one of v stages of a rank counts as 1/v."""
    count = 0
    for event in events:
        if event.action.kind is Kind.FORWARD:
            count += 1
            yield event.start_seconds, count / chunks
        elif event.action.kind.ends_backward:
            count -= 1
            yield event.end_seconds, count / chunks
