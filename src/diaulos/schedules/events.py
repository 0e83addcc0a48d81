"""Events: actions with their times, one by one or as columns of numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.columnar.columns import Columns, Flags, Numbers, are_of_kind
from diaulos.schedules.columnar.rows import MadeWhenRead, actions_at

Seconds = NDArray[np.float64]


class Event(NamedTuple):
    """An action of a rank, from its start to its end; waiting for others is not part of it."""

    rank: int
    action: Action
    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Entry i of every column belongs to event i."""

    rank: Numbers
    stage: Numbers
    kind: Numbers
    """The code of the action's kind."""
    number: Numbers
    start_seconds: Seconds
    end_seconds: Seconds

    @staticmethod
    def of(events: Sequence[Event]) -> "Moments":
        """The columns of events."""
        if isinstance(events, Events):
            return events.moments
        count = len(events)
        return Moments(
            rank=np.fromiter((event.rank for event in events), np.int64, count),
            stage=np.fromiter((event.action.stage for event in events), np.int64, count),
            kind=np.fromiter((event.action.kind.code for event in events), np.int64, count),
            number=np.fromiter((event.action.number for event in events), np.int64, count),
            start_seconds=np.fromiter((e.start_seconds for e in events), np.float64, count),
            end_seconds=np.fromiter((e.end_seconds for e in events), np.float64, count),
        )

    def is_kind(self, *kinds: Kind) -> Flags:
        """Where the actions are of one of these kinds."""
        return are_of_kind(self.kind, *kinds)

    @property
    def sorted(self) -> "Moments":
        """By rank, and by start within each; what is equal in both stays in order."""
        is_later_rank = self.rank[1:] > self.rank[:-1]
        is_same_rank = self.rank[1:] == self.rank[:-1]
        is_in_time = self.start_seconds[1:] >= self.start_seconds[:-1]
        if bool(np.all(is_later_rank | (is_same_rank & is_in_time))):
            return self
        order = np.lexsort((self.start_seconds, self.rank))
        return Moments(**{name: getattr(self, name)[order] for name in self.__slots__})


class Events(MadeWhenRead[Event]):
    """The events at some places of a schedule's columns, each made when it is read.

    What a timeline tells in numbers goes by the columns, so that of large schedules few events are
    ever made.
    """

    def __init__(self, columns: Columns, places: Numbers, start: Seconds, end: Seconds) -> None:
        self._columns, self._places = columns, places
        self.moments = Moments(
            rank=columns.rank[places],
            stage=columns.stage[places],
            kind=columns.kind[places],
            number=columns.number[places],
            start_seconds=start[places],
            end_seconds=end[places],
        )

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Event: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Event, ...]: ...

    def __getitem__(self, place: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(place, slice):
            return self._made(place)
        one = range(len(self))[place]
        return self._made(slice(one, one + 1))[0]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._made(slice(None)))

    def _made(self, places: slice) -> tuple[Event, ...]:
        moments = self.moments
        made = map(
            Event,
            moments.rank[places].tolist(),
            actions_at(self._columns, self._places[places]),
            moments.start_seconds[places].tolist(),
            moments.end_seconds[places].tolist(),
        )
        return tuple(made)
