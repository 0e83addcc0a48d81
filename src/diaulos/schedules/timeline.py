"""The timeline: what each rank did when, planned or measured, in one form."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from diaulos.documents import Value, read_json, write_json
from diaulos.errors import InputError
from diaulos.schedules.actions import Kind, parse_action
from diaulos.schedules.events import Event, Moments

FORMAT = "diaulos.timeline/1"


class MemoryPoint(NamedTuple):
    """From this moment on a rank holds this many bytes."""

    rank: int
    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """What a rank holds all the time."""

    fixed_bytes: float
    """With one version of the weights."""
    versions_bytes: float
    """Of all further versions."""

    @property
    def bytes(self) -> float:
        """All of it."""
        return self.fixed_bytes + self.versions_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """When a rank holds most, and what."""

    seconds: float
    fixed_bytes: float
    versions_bytes: float
    activation_bytes: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Computations and updates of all ranks, by time within each rank."""

    name: str
    microbatches: int
    """Of one batch, over all replicas."""
    events: Sequence[Event]
    messages: Sequence[Event] = ()
    """Sends, from when each takes its link to its arrival, where that is known."""
    memory: tuple[MemoryPoint, ...] = ()
    """In the order of time within each rank."""
    resident: tuple[Resident, ...] = ()
    """By rank, the part of the memory that is always held."""

    def __post_init__(self) -> None:
        if not self.events:
            raise InputError("a timeline has no events", "it needs at least one")

    @cached_property
    def ranks(self) -> int:
        """How many ranks there are."""
        return 1 + int(self._moments.rank.max())

    @cached_property
    def start_seconds(self) -> float:
        """When the first event starts."""
        return float(self._moments.start_seconds.min())

    @cached_property
    def makespan_seconds(self) -> float:
        """From the first start to the last end."""
        return float(self._moments.end_seconds.max()) - self.start_seconds

    def of_rank(self, rank: int) -> tuple[Event, ...]:
        """The events of a rank."""
        return self._by_rank[rank]

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that a rank holds, as its events tell."""
        return self._stages_by_rank[rank]

    def busy_seconds(self, rank: int) -> float:
        """How long a rank computes and updates."""
        return self._busy_seconds[rank]

    @cached_property
    def bubble_fraction(self) -> float:
        """The idle share of all ranks, from the first start to the last end."""
        busy = sum(self.busy_seconds(rank) for rank in range(self.ranks))
        return _idle_share(busy, self.makespan_seconds * self.ranks)

    @cached_property
    def batch_ends_seconds(self) -> tuple[float, ...]:
        """When the last backward of each batch ends, batch by batch."""
        moments = self._moments
        chosen = moments.is_kind(Kind.BACKWARD, Kind.WEIGHT_BACKWARD)
        batch = moments.number[chosen] // self.microbatches
        ends = np.full(1 + int(batch.max(initial=-1)), -np.inf)
        np.maximum.at(ends, batch, moments.end_seconds[chosen])
        return tuple(ends[ends > -np.inf].tolist())

    @cached_property
    def step_seconds(self) -> float:
        """The median time from the end of one batch to the end of the next.

        With a single batch, its whole time.
        """
        ends = self.batch_ends_seconds
        if len(ends) < 2:
            return self.makespan_seconds
        return median(after - before for before, after in pairwise(ends))

    @cached_property
    def step_bubble_fraction(self) -> float:
        """The idle share of all ranks within a step.

        Each rank's busy time per batch over the step time; unlike `bubble_fraction` it does not
        count the fill and drain of a run that is flushed only at its ends.
        """
        batches = max(len(self.batch_ends_seconds), 1)
        busy = sum(self.busy_seconds(rank) for rank in range(self.ranks))
        return _idle_share(busy, batches * self.ranks * self.step_seconds)

    def peak_memory_bytes(self, rank: int) -> float:
        """The most bytes that a rank holds at a time, 0 where memory is not known."""
        return self._peaks[rank].bytes if rank in self._peaks else 0.0

    def peak_memory(self, rank: int) -> MemoryPeak:
        """When a simulated rank first holds most, and what by kind."""
        most = self._peaks[rank]
        always = self.resident[rank]
        return MemoryPeak(
            seconds=most.seconds,
            fixed_bytes=always.fixed_bytes,
            versions_bytes=always.versions_bytes,
            activation_bytes=most.bytes - always.bytes,
        )

    def peak_in_flight(self, rank: int) -> int:
        """The most microbatches between forward and the end of the backward on a rank at a time.

        Counted apart for each stage that the rank holds.
        """
        return self._peaks_in_flight[rank]

    @cached_property
    def moments(self) -> Moments:
        """The events as columns, by rank, and in each by start."""
        return self._moments.sorted

    @cached_property
    def _moments(self) -> Moments:
        return Moments.of(self.events)

    @cached_property
    def _peaks_in_flight(self) -> tuple[int, ...]:
        moments = self.moments
        steps = moments.is_kind(Kind.FORWARD).astype(np.int64)
        steps -= moments.is_kind(Kind.BACKWARD, Kind.WEIGHT_BACKWARD)
        bounds = np.searchsorted(moments.rank, np.arange(self.ranks + 1)).tolist()
        counts = (np.cumsum(steps[start:stop]) for start, stop in pairwise(bounds))
        return tuple(int(count.max(initial=0)) for count in counts)

    @cached_property
    def _peaks(self) -> dict[int, MemoryPoint]:
        """By rank, from when on it first holds most."""
        peaks: dict[int, MemoryPoint] = {}
        for point in self.memory:
            if point.bytes > peaks.setdefault(point.rank, point).bytes:
                peaks[point.rank] = point
        return peaks

    @cached_property
    def _stages_by_rank(self) -> tuple[tuple[int, ...], ...]:
        moments = self._moments
        stages = 1 + int(moments.stage.max())
        is_held = np.zeros((self.ranks, stages), np.bool_)
        is_held[moments.rank, moments.stage] = True
        return tuple(tuple(row.nonzero()[0].tolist()) for row in is_held)

    @cached_property
    def _busy_seconds(self) -> tuple[float, ...]:
        moments = self.moments
        seconds = moments.end_seconds - moments.start_seconds
        return tuple(np.bincount(moments.rank, seconds, minlength=self.ranks).tolist())

    @cached_property
    def _by_rank(self) -> tuple[tuple[Event, ...], ...]:
        rows: list[list[Event]] = [[] for _ in range(self.ranks)]
        for event in self.events:
            rows[event.rank].append(event)
        return tuple(tuple(sorted(row, key=lambda event: event.start_seconds)) for row in rows)


def _idle_share(busy_seconds: float, all_seconds: float) -> float:
    """What is not busy, of all; 0 where rounding or a median would make it less."""
    return max(1.0 - busy_seconds / all_seconds, 0.0) if all_seconds else 0.0


def format_timeline(timeline: Timeline) -> dict[str, Any]:
    """The document of a timeline."""
    return {
        "format": FORMAT,
        "name": timeline.name,
        "microbatches": timeline.microbatches,
        "events": [*map(_event_cells, timeline.events)],
        "messages": [*map(_event_cells, timeline.messages)],
        "memory": [[point.rank, point.seconds, point.bytes] for point in timeline.memory],
        "resident": [[held.fixed_bytes, held.versions_bytes] for held in timeline.resident],
    }


def _event_cells(event: Event) -> list[object]:
    return [event.rank, str(event.action), event.start_seconds, event.end_seconds]


def write_timeline(path: Path, timeline: Timeline) -> None:
    """Write a timeline as JSON; reading it back gives an equal one."""
    write_json(path, format_timeline(timeline))


def read_timeline(path: Path) -> Timeline:
    """A timeline from a JSON file."""
    fields = read_json(path).fields(
        ("format", "name", "microbatches", "events", "memory"), ("messages", "resident")
    )
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    return Timeline(
        name=fields["name"].text(),
        microbatches=fields["microbatches"].integer(minimum=1),
        events=tuple(_parse_event(value) for value in fields["events"].items()),
        messages=tuple(
            _parse_event(value)
            for value in (fields["messages"].items() if "messages" in fields else ())
        ),
        memory=tuple(_parse_point(value) for value in fields["memory"].items()),
        resident=tuple(
            _parse_resident(value)
            for value in (fields["resident"].items() if "resident" in fields else ())
        ),
    )


def _parse_event(value: Value) -> Event:
    rank, action, start, end = _cells(value, 4)
    with action.context():
        parsed = parse_action(action.text())
    return Event(rank.integer(minimum=0), parsed, start.number(), end.number())


def _parse_point(value: Value) -> MemoryPoint:
    rank, seconds, size = _cells(value, 3)
    return MemoryPoint(rank.integer(minimum=0), seconds.number(), size.number())


def _parse_resident(value: Value) -> Resident:
    fixed, versions = _cells(value, 2)
    return Resident(fixed_bytes=fixed.number(), versions_bytes=versions.number())


def _cells(value: Value, count: int) -> list[Value]:
    cells = value.items()
    if len(cells) != count:
        raise value.error(f"has {len(cells)} elements", f"it must have {count}")
    return cells
