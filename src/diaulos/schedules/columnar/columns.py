"""The actions of a schedule as columns of numbers, one entry per action, rank after rank.

What is linear in the number of actions is done on these columns at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter, itemgetter

import numpy as np
from numpy.typing import NDArray

from diaulos.schedules.actions import Action, Kind

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_VERSION = NO_PARTNER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Entry i of every column belongs to action i; the actions of rank r begin at `starts[r]`."""

    starts: tuple[int, ...]
    """Of each rank, and behind them the number of all actions."""
    rank: Numbers
    stage: Numbers
    kind: Numbers
    """The code of the action's kind."""
    number: Numbers
    version: Numbers
    """`NO_VERSION` where an action has none."""

    @staticmethod
    def of(rows: Sequence[Sequence[Action]]) -> "Columns":
        """The columns of the actions of each rank."""
        lengths = [len(row) for row in rows]
        starts = tuple(accumulate(lengths, initial=0))
        actions = list(chain.from_iterable(rows))

        def column(value: Callable[[Action], int]) -> Numbers:
            return np.fromiter(map(value, actions), np.int64, len(actions))

        versions = (NO_VERSION if a.version is None else a.version for a in actions)
        return Columns(
            starts=starts,
            rank=np.repeat(np.arange(len(rows)), lengths),
            stage=column(itemgetter(0)),
            kind=column(attrgetter("kind.code")),
            number=column(itemgetter(2)),
            version=np.fromiter(versions, np.int64, len(actions)),
        )

    def is_kind(self, *kinds: Kind) -> Flags:
        """Where the actions are of one of these kinds."""
        return are_of_kind(self.kind, *kinds)

    def place(self, index: int) -> tuple[int, int]:
        """The rank of an action and its place in the rank's row."""
        rank = int(self.rank[index])
        return rank, index - self.starts[rank]


def are_of_kind(codes: Numbers, *kinds: Kind) -> Flags:
    """Where codes are those of one of these kinds."""
    wanted = np.zeros(len(Kind), np.bool_)
    wanted[[kind.code for kind in kinds]] = True
    flags: Flags = wanted[codes]
    return flags


def partners(columns: Columns, stages: int, microbatches: range) -> Numbers:
    """For each send the index of its receive and for each receive that of its send; else -1.

    `microbatches` are those of all batches.
    """
    forwards = columns.is_kind(Kind.SEND_FORWARD, Kind.RECEIVE_FORWARD)
    sends = columns.is_kind(Kind.SEND_FORWARD, Kind.SEND_BACKWARD)
    is_message = sends | columns.is_kind(Kind.RECEIVE_FORWARD, Kind.RECEIVE_BACKWARD)
    border = columns.stage - (forwards != sends)
    number = columns.number - microbatches.start
    inside = (border >= 0) & (border < stages) & (number >= 0) & (number < len(microbatches))
    message = (2 * border + forwards) * len(microbatches) + number
    partner = np.full(len(message), NO_PARTNER)
    sides = [(is_message & inside & side).nonzero()[0] for side in (sends, ~sends)]
    for side, other in (sides, reversed(sides)):
        table = np.full(2 * stages * len(microbatches), NO_PARTNER)
        table[message[other]] = other
        partner[side] = table[message[side]]
    return partner
