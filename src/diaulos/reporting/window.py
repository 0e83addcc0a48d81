"""Parts of timelines, moved so that they begin at 0 seconds."""

from dataclasses import replace

from diaulos.errors import InputError
from diaulos.schedules.events import Event
from diaulos.schedules.timeline import Timeline


def shifted_events(timeline: Timeline, rank: int) -> tuple[Event, ...]:
    """The events of a rank, with the timeline's first start as 0 seconds."""
    start = timeline.start_seconds
    return tuple(
        event._replace(
            start_seconds=event.start_seconds - start, end_seconds=event.end_seconds - start
        )
        for event in timeline.of_rank(rank)
    )


def from_batch(timeline: Timeline, batch: int) -> Timeline:
    """The timeline from the first computation of a batch on, without what began before it."""
    first = batch * timeline.microbatches
    starts = [
        event.start_seconds
        for event in timeline.events
        if event.action.kind.is_compute and event.action.number >= first
    ]
    if not starts:
        raise InputError(f"timeline {timeline.name!r} has no batch {batch}", "it ends before")
    kept = [event for event in timeline.events if event.start_seconds >= min(starts)]
    messages = [sent for sent in timeline.messages if sent.start_seconds >= min(starts)]
    points = [point for point in timeline.memory if point.seconds >= min(starts)]
    return replace(timeline, events=tuple(kept), messages=tuple(messages), memory=tuple(points))
