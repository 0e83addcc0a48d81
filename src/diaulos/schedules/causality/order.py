"""The order in which the actions of all ranks can happen, or the reason why they cannot.

A rank does its actions one after another and waits at a receive for the matching send and at an
update for reductions. A schedule falls so into stretches, which a rank does without waiting.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.errors import ScheduleError
from diaulos.schedules.schedule import Schedule

_NOWHERE = -1


class Stretch(NamedTuple):
    """Actions `start` to `stop` (of all ranks, in one count) that a rank does without waiting."""

    rank: int
    start: int
    stop: int


def execution_order(schedule: Schedule) -> Iterator[tuple[int, Action]]:
    """Every (rank, action), each after all that it waits for.

    Raises `ScheduleError` at a deadlock, with the circle of ranks that wait for each other.
    """
    starts = schedule.columns.starts
    for rank, start, stop in stretches(schedule):
        for action in schedule.actions[rank][start - starts[rank] : stop - starts[rank]]:
            yield rank, action


def stretches(schedule: Schedule, *, sends_wait: bool = False) -> list[Stretch]:
    """The stretches of all ranks, each after all that it waits for.

    An action waits for those before it on its rank, a receive for its matching send, and an update
    for the reductions of its batch: of all ranks, or of its stage where stages update on their own.
    A send waits until the receive is reached only where `sends_wait`. Raises `ScheduleError` at a
    deadlock, with the circle of ranks that wait for each other.
    """
    walk = _Walk(schedule, sends_wait=sends_wait)
    walk.run()
    if walk.is_stuck:
        raise _deadlock(schedule, walk.position, sends_wait=sends_wait)
    return walk.stretches


class _Walk:
    """All ranks going through their actions as far as they come."""

    def __init__(self, schedule: Schedule, *, sends_wait: bool) -> None:
        columns = schedule.columns
        self.schedule = schedule
        self.position = list(columns.starts[:-1])
        """Of each rank, the action that it does next, once all have gone as far as they come."""
        self.ends = columns.starts[1:]
        self.stretches: list[Stretch] = []
        self.reduced: Counter[tuple[int, int]] = Counter()
        """Reductions by batch and stage, or by batch alone."""
        self.awaiting: dict[int | tuple[int, int], list[int]] = {}
        """The ranks that wait for a rank to go on, or for reductions."""
        stops = columns.is_kind(
            Kind.RECEIVE_FORWARD, Kind.RECEIVE_BACKWARD, Kind.REDUCE, Kind.UPDATE
        )
        if sends_wait:
            stops |= columns.is_kind(Kind.SEND_FORWARD, Kind.SEND_BACKWARD)
        indices = stops.nonzero()[0]
        partner = schedule.partners[indices]
        kind = columns.kind[indices]
        is_passed = 0 if sends_wait else 1
        """Whether a receive waits until its send is done, or only reached."""
        needed = np.where(partner < 0, len(columns.rank), partner + is_passed)
        waits_for_peer = (kind != Kind.REDUCE.code) & (kind != Kind.UPDATE.code)
        self.indices = indices.tolist()
        self.kinds = kind.tolist()
        self.peers = np.where(waits_for_peer, columns.rank[partner], len(self.ends)).tolist()
        """The rank that must have come to `needed`; behind all ranks one that never does."""
        self.needed = np.where(waits_for_peer, needed, 0).tolist()
        self.firsts = np.searchsorted(indices, columns.starts).tolist()

    @property
    def is_stuck(self) -> bool:
        return any(p < end for p, end in zip(self.position, self.ends, strict=True))

    def run(self) -> None:
        ready = list(range(len(self.ends)))
        next_stop = self.firsts[:-1]
        peers, needed, lasts = self.peers, self.needed, self.firsts[1:]
        reached = [*self.position, _NOWHERE]
        while ready:
            rank = ready.pop()
            stop, last = next_stop[rank], lasts[rank]
            while True:
                while stop < last and reached[peers[stop]] >= needed[stop]:
                    stop += 1
                if stop == last or not self._passes(rank, stop, ready):
                    break
                stop += 1
            next_stop[rank] = stop
            start, end = reached[rank], self.ends[rank] if stop == last else self.indices[stop]
            if end > start:
                reached[rank] = end
                self.stretches.append(Stretch(rank, start, end))
                ready += self.awaiting.pop(rank, ())
        self.position = reached[:-1]

    def _passes(self, rank: int, stop: int, ready: list[int]) -> bool:
        """Whether a rank goes on at a stop where no peer lets it pass; else it is put to wait.

        Ranks that are set free become ready.
        """
        index, kind = self.indices[stop], self.kinds[stop]
        if kind == Kind.REDUCE.code:
            ready += self._count_reduction(index)
            return True
        awaited: int | tuple[int, int] | None = self.peers[stop]
        if kind == Kind.UPDATE.code:
            awaited = self._missing_reductions(index)
        if awaited is None:
            return True
        self.awaiting.setdefault(awaited, []).append(rank)
        return False

    def _count_reduction(self, index: int) -> list[int]:
        """Count a reduction; the ranks that it sets free."""
        key = self._reduction_of(index)
        self.reduced[key] += 1
        if self.reduced[key] == self._reductions_needed(key):
            return self.awaiting.pop(key, [])
        return []

    def _missing_reductions(self, index: int) -> tuple[int, int] | None:
        key = self._reduction_of(index)
        return key if self.reduced[key] < self._reductions_needed(key) else None

    def _reduction_of(self, index: int) -> tuple[int, int]:
        columns = self.schedule.columns
        alone = self.schedule.updates_stage_by_stage
        return int(columns.number[index]), int(columns.stage[index]) if alone else -1

    def _reductions_needed(self, key: tuple[int, int]) -> int:
        shape = self.schedule.shape
        return len(shape.ranks_of(key[1])) if key[1] >= 0 else shape.ranks * shape.chunks


def _deadlock(schedule: Schedule, position: list[int], *, sends_wait: bool) -> ScheduleError:
    """Follow who waits for whom until a rank comes up twice."""
    starts = schedule.columns.starts
    local = [index - start for index, start in zip(position, starts, strict=False)]
    rank = next(r for r, row in enumerate(schedule.actions) if local[r] < len(row))
    seen: list[int] = []
    story: list[str] = []
    while rank not in seen and local[rank] < len(schedule.actions[rank]):
        seen.append(rank)
        action = schedule.actions[rank][local[rank]]
        needed, other = _whom(schedule, local, action)
        row = schedule.actions[other]
        comes = any(found[:3] == needed[:3] for found in row[local[other] :])
        verdict = f"stands behind {row[local[other]]}" if comes else "never comes"
        story.append(f"{action} on rank {rank} waits for {needed} on rank {other}, which {verdict}")
        rank = other
    circle = seen.index(rank) if rank in seen else 0
    first = seen[circle]
    problem = "deadlock" + (" where sends wait for their receives: " if sends_wait else ": ")
    return ScheduleError(schedule, first, local[first], problem + "; ".join(story[circle:]))


def _whom(schedule: Schedule, local: list[int], action: Action) -> tuple[Action, int]:
    """What a stuck action waits for, and on which rank."""
    if action.kind is Kind.UPDATE:
        return _missing_reduction(schedule, local, action)
    needed = action.matching_send() if action.kind.is_receive else action.matching_receive()
    return needed, schedule.shape.rank_of(needed.stage, needed.number)


def _missing_reduction(schedule: Schedule, local: list[int], update: Action) -> tuple[Action, int]:
    shape = schedule.shape
    stages = [update.stage] if schedule.updates_stage_by_stage else range(shape.stages)
    for stage in stages:
        needed = Action(stage, Kind.REDUCE, update.number)
        for rank in shape.ranks_of(stage):
            if needed not in schedule.actions[rank][: local[rank]]:
                return needed, rank
    raise AssertionError
