"""Rows of actions that are made from columns once somebody reads them."""

from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.columnar.columns import NO_VERSION, Columns, Numbers

_KINDS = tuple(Kind)
Member = TypeVar("Member")


class MadeWhenRead(Sequence[Member]):
    """Members that are made when they are read; equal to the tuple of them."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MadeWhenRead | tuple):
            return tuple(self) == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))


class Rows(MadeWhenRead[tuple[Action, ...]]):
    """The actions of each rank.

    Checking and simulating go by the columns, so that of large schedules few rows are ever made.
    """

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._made: dict[int, tuple[Action, ...]] = {}

    def __len__(self) -> int:
        return len(self.columns.starts) - 1

    @overload
    def __getitem__(self, rank: int) -> tuple[Action, ...]: ...

    @overload
    def __getitem__(self, rank: slice) -> tuple[tuple[Action, ...], ...]: ...

    def __getitem__(self, rank: int | slice) -> tuple[Action, ...] | tuple[tuple[Action, ...], ...]:
        if isinstance(rank, slice):
            return tuple(self[one] for one in range(len(self))[rank])
        place = range(len(self))[rank]
        if place not in self._made:
            starts = self.columns.starts
            self._made[place] = tuple(actions_at(self.columns, slice(*starts[place : place + 2])))
        return self._made[place]


def actions_at(columns: Columns, places: Numbers | slice) -> Iterator[Action]:
    """The actions that stand at some places of the columns."""
    versions = columns.version[places].tolist()
    return map(
        Action,
        columns.stage[places].tolist(),
        map(_KINDS.__getitem__, columns.kind[places].tolist()),
        columns.number[places].tolist(),
        (None if version == NO_VERSION else version for version in versions),
    )
