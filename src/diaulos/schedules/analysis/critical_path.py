"""The critical path of a timeline: the chain of events that makes it as long as it is."""

from collections.abc import Iterable

from diaulos.schedules.actions import Kind
from diaulos.schedules.events import Event
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.timeline import Timeline

_Key = tuple[Kind, int, int]


def critical_path(schedule: Schedule, timeline: Timeline) -> tuple[Event, ...]:
    """The events of which each starts because the one before it ended, up to the last end.

    Where one waited for a message, the one before it is what sent it, and the time between them is
    the link's; where one waited for reductions, it is the last backward of the batch.
    """
    previous: dict[tuple[int, _Key], Event] = {}
    by_key: dict[_Key, Event] = {}
    last_of_batch: dict[tuple[int, int], Event] = {}
    for rank in range(timeline.ranks):
        before = None
        for event in timeline.of_rank(rank):
            key = _key(event)
            if before is not None:
                previous[rank, key] = before
            if event.action.kind is not Kind.UPDATE:
                by_key[key] = event
            if event.action.kind.ends_backward:
                for group in _groups(schedule, event):
                    last_of_batch[group] = _later(event, last_of_batch.get(group))
            before = event
    event = max(timeline.events, key=lambda found: found.end_seconds)
    path = [event]
    while True:
        before = previous.get((event.rank, _key(event)))
        if before is None or before.end_seconds < event.start_seconds:
            before = _later_of(_causes(schedule, event, by_key, last_of_batch), before)
        if before is None:
            return tuple(reversed(path))
        event = before
        path.append(event)


def _key(event: Event) -> _Key:
    return event.action.kind, event.action.stage, event.action.number


def _later(event: Event, other: Event | None) -> Event:
    return event if other is None or event.end_seconds > other.end_seconds else other


def _later_of(causes: Iterable[Event], before: Event | None) -> Event | None:
    for cause in causes:
        before = _later(cause, before)
    return before


def _groups(schedule: Schedule, event: Event) -> list[tuple[int, int]]:
    """The reductions that a backward belongs to: of its stage and of all stages, by batch."""
    batch = event.action.number // schedule.shape.microbatches
    return [(batch, event.action.stage), (batch, -1)]


def _causes(
    schedule: Schedule,
    event: Event,
    by_key: dict[_Key, Event],
    last_of_batch: dict[tuple[int, int], Event],
) -> list[Event]:
    """The events of other ranks that an event has waited for."""
    kind, stage, number = _key(event)
    if kind is Kind.UPDATE:
        found = last_of_batch.get((number, stage if schedule.updates_stage_by_stage else -1))
        return [] if found is None else [found]
    keys: list[_Key] = []
    if kind is Kind.FORWARD:
        keys = [(kind, stage - 1, number)]
    elif kind.gives_gradient:
        keys = [(half, stage + 1, number) for half in (Kind.BACKWARD, Kind.INPUT_BACKWARD)]
    return [by_key[key] for key in keys if key in by_key]
