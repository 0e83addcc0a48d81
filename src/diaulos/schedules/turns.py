"""The order of time over all ranks, for what they share: who comes first is served first."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from diaulos.schedules.actions import Kind
from diaulos.schedules.columns import Columns, Flags, Numbers
from diaulos.schedules.order import Stretch

_REDUCE, _UPDATE = Kind.REDUCE.code, Kind.UPDATE.code


def turns(
    columns: Columns,
    partner: Numbers,
    lane: Sequence[int],
    *,
    is_shared: Flags,
    clock: Sequence[float],
) -> Iterator[Stretch]:
    """Stretches of all ranks; none starts with a shared send while another may start earlier.

    Whoever takes a stretch sets the clock of its rank to its end before asking for the next one.
    A rank waits at receives for their sends, and at updates for all reductions of their lane.
    """
    return _Turns(columns, partner, lane, is_shared, clock).stretches()


class _Turns:
    """All ranks, each before one of its stretches."""

    def __init__(
        self,
        columns: Columns,
        partner: Numbers,
        lane: Sequence[int],
        is_shared: Flags,
        clock: Sequence[float],
    ) -> None:
        self.lane, self.clock = lane, clock
        self.kind, self.partner = columns.kind.tolist(), partner.tolist()
        cuts = is_shared | columns.is_kind(Kind.RECEIVE_FORWARD, Kind.RECEIVE_BACKWARD, Kind.UPDATE)
        cuts[[start for start in columns.starts[:-1] if start < len(cuts)]] = True
        self.starts = np.append(cuts.nonzero()[0], len(cuts)).tolist()
        """Of all stretches, rank by rank."""
        bounds = np.searchsorted(self.starts, columns.starts).tolist()
        self.next, self.last = bounds[:-1], bounds[1:]
        """Of each rank, its next stretch and that behind its last."""
        self.is_sent = [False] * len(cuts)
        reductions = columns.is_kind(Kind.REDUCE).nonzero()[0].tolist()
        self.reductions_left = Counter(lane[index] for index in reductions)
        self.awaiting_send: dict[int, int] = {}
        self.awaiting_reductions: dict[int, list[int]] = {}
        self.ready = [
            (0.0, rank) for rank, place in enumerate(self.next) if place < self.last[rank]
        ]

    def stretches(self) -> Iterator[Stretch]:
        while self.ready:
            _, rank = heapq.heappop(self.ready)
            place = self.next[rank]
            start, stop = self.starts[place : place + 2]
            if not self._can_start(rank, start):
                continue
            yield Stretch(rank, start, stop)
            self.next[rank] += 1
            self._wake_others(start, stop)
            if self.next[rank] < self.last[rank]:
                self._wake(rank)

    def _can_start(self, rank: int, index: int) -> bool:
        """Whether a rank need not wait at an action; else it is put to wait."""
        send, lane = self.partner[index], self.lane[index]
        is_receive = self.kind[index] in (Kind.RECEIVE_FORWARD.code, Kind.RECEIVE_BACKWARD.code)
        if is_receive and not self.is_sent[send]:
            self.awaiting_send[send] = rank
            return False
        if self.kind[index] == _UPDATE and self.reductions_left[lane]:
            self.awaiting_reductions.setdefault(lane, []).append(rank)
            return False
        return True

    def _wake_others(self, start: int, stop: int) -> None:
        for index in range(start, stop):
            self.is_sent[index] = True
            if index in self.awaiting_send:
                self._wake(self.awaiting_send.pop(index))
            if self.kind[index] == _REDUCE:
                lane = self.lane[index]
                self.reductions_left[lane] -= 1
                if not self.reductions_left[lane]:
                    for rank in self.awaiting_reductions.pop(lane, ()):
                        self._wake(rank)

    def _wake(self, rank: int) -> None:
        heapq.heappush(self.ready, (self.clock[rank], rank))
