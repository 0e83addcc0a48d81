"""The order of time over all ranks, for what they share: who comes first is served first."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from diaulos.schedules.actions import Kind
from diaulos.schedules.causality.order import Stretch
from diaulos.schedules.columnar.columns import Columns, Flags, Numbers


class Turns:
    """The stretches of all ranks, cut so that shared sends begin one, to be taken many times."""

    def __init__(
        self, columns: Columns, partner: Numbers, *, lane: Sequence[int], is_shared: Flags
    ) -> None:
        self.lane = lane
        """Of each action; reductions and updates of one lane belong together."""
        receives = columns.is_kind(Kind.RECEIVE_FORWARD, Kind.RECEIVE_BACKWARD)
        updates, reduces = columns.is_kind(Kind.UPDATE), columns.is_kind(Kind.REDUCE)
        cuts = is_shared | receives | updates
        cuts[[start for start in columns.starts[:-1] if start < len(cuts)]] = True
        begins = cuts.nonzero()[0]
        self._stretches = [
            Stretch(*cells)
            for cells in zip(
                columns.rank[begins].tolist(),
                begins.tolist(),
                [*begins[1:].tolist(), len(cuts)],
                strict=True,
            )
        ]
        bounds = np.searchsorted(begins, columns.starts).tolist()
        self._first, self._last = bounds[:-1], bounds[1:]
        """Of each rank, its first stretch and that behind its last."""
        self._needs = np.where(receives, partner, -1)[begins].tolist()
        """The send that the first action waits for, or -1."""
        self._needs_rank = columns.rank[np.maximum(partner, 0)][begins].tolist()
        self._is_update = updates[begins].tolist()
        self._reductions: list[list[int]] = [[] for _ in begins]
        """The lanes of the reductions of each stretch."""
        reductions = reduces.nonzero()[0]
        owners = np.searchsorted(begins, reductions, side="right") - 1
        for owner, index in zip(owners.tolist(), reductions.tolist(), strict=True):
            self._reductions[owner].append(lane[index])
        self._counts = Counter(lane[index] for index in reductions.tolist())

    def in_order(self, clock: Sequence[float]) -> Iterator[Stretch]:
        """None starts with a shared send while another may start earlier.

        Whoever takes a stretch sets the clock of its rank to its end before asking for the next
        one. A rank waits at receives for their sends, and at updates for all reductions of their
        lane.
        """
        following, reached = list(self._first), [0] * len(self._first)
        left = self._counts.copy()
        awaiting: dict[int, list[int]] = {}
        awaiting_reductions: dict[int, list[int]] = {}
        ranks = range(len(following))
        ready = [(0.0, rank) for rank in ranks if following[rank] < self._last[rank]]
        while ready:
            _, rank = heapq.heappop(ready)
            place = following[rank]
            stretch, peer = self._stretches[place], self._needs_rank[place]
            if reached[peer] <= self._needs[place]:
                awaiting.setdefault(peer, []).append(rank)
                continue
            if self._is_update[place] and left[self.lane[stretch.start]]:
                awaiting_reductions.setdefault(self.lane[stretch.start], []).append(rank)
                continue
            yield stretch
            reached[rank] = stretch.stop
            following[rank] = place + 1
            woken = awaiting.pop(rank, [])
            for lane in self._reductions[place]:
                left[lane] -= 1
                if not left[lane]:
                    woken += awaiting_reductions.pop(lane, ())
            if place + 1 < self._last[rank]:
                woken.append(rank)
            for one in woken:
                heapq.heappush(ready, (clock[one], one))
