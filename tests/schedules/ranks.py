"""What ranks with queues between them would do with a schedule, written apart from the checker.

A rank does its actions in order. Messages of a link arrive in the order in which they were sent,
without tags. Weights lie in banks that updates overwrite, gradients pile up until they are handed
over, and a reduction is a collective of all ranks.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule


class WrongError(Exception):
    """A rank cannot do its next action, or all wait for ever."""


@dataclass
class Rank:
    number: int
    stage: int
    banks: dict[int, int]
    newest: int
    position: int = 0
    done: list[Action] = field(default_factory=list)
    at_hand: set[tuple[Kind, int]] = field(default_factory=set)
    """Tensors: inputs and gradients that arrived, outputs and gradients that were computed."""
    in_flight: dict[int, int] = field(default_factory=dict)
    piled_up: list[int] = field(default_factory=list)
    handed_over: list[int] = field(default_factory=list)


class Ranks:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.shape = schedule, schedule.shape
        self.links: dict[tuple[int, int, bool], deque[int]] = defaultdict(deque)
        kept = schedule.weight_versions
        versions = range(max(schedule.first_batch - kept + 1, 0), schedule.first_batch + 1)
        self.ranks = [
            Rank(
                rank,
                self.shape.stage_of(rank),
                banks={version % kept: version for version in versions},
                newest=schedule.first_batch,
            )
            for rank in range(self.shape.ranks)
        ]

    def run(self) -> None:
        """Return when all is done; raise `WrongError` where something is not."""
        moved = True
        while moved:
            moved = False
            for rank in self.ranks:
                row = self.schedule.actions[rank.number]
                while rank.position < len(row) and self.act(rank, row[rank.position]):
                    rank.done.append(row[rank.position])
                    rank.position += 1
                    moved = True
        for rank in self.ranks:
            self.require(rank.position == len(self.schedule.actions[rank.number]))
            self.require(rank.handed_over == list(self.schedule.batch_numbers))
            self.require(rank.newest == self.schedule.batch_numbers.stop)
            self.require(not rank.in_flight and not rank.at_hand and not rank.piled_up)
        self.require(not any(self.links.values()))

    def act(self, rank: Rank, action: Action) -> bool:
        """Whether the action could be done now; it waits otherwise."""
        self.require(action.stage == rank.stage and action not in rank.done)
        if action.kind is Kind.REDUCE:
            return self.reduce(rank, action.number)
        if action.kind is Kind.UPDATE:
            return self.update(rank, action.number)
        batch = action.number // self.shape.microbatches
        self.require(batch in self.schedule.batch_numbers)
        self.require(action.number in self.shape.microbatches_of(rank.number, batch))
        if action.kind.is_compute:
            return self.compute(rank, action)
        return self.message(rank, action)

    def compute(self, rank: Rank, action: Action) -> bool:
        delay = self.schedule.gradient_delay
        version = max(action.number // self.shape.microbatches - delay, 0)
        self.require(action.version == version)
        self.require(rank.banks.get(version % self.schedule.weight_versions) == version)
        if action.kind is Kind.FORWARD:
            self.take(rank, Kind.RECEIVE_FORWARD, action.number, unless=rank.stage == 0)
            rank.in_flight[action.number] = version
            self.require(len(rank.in_flight) <= self.schedule.in_flight_limits[rank.stage])
            if rank.stage < self.shape.stages - 1:
                rank.at_hand.add((Kind.SEND_FORWARD, action.number))
        else:
            is_last = rank.stage == self.shape.stages - 1
            self.take(rank, Kind.RECEIVE_BACKWARD, action.number, unless=is_last)
            self.require(rank.in_flight.pop(action.number, None) == version)
            rank.piled_up.append(action.number)
            if rank.stage > 0:
                rank.at_hand.add((Kind.SEND_BACKWARD, action.number))
        return True

    def message(self, rank: Rank, action: Action) -> bool:
        forwards = action.kind in (Kind.SEND_FORWARD, Kind.RECEIVE_FORWARD)
        step = 1 if forwards == action.kind.is_send else -1
        self.require(0 <= rank.stage + step < self.shape.stages)
        peer = self.shape.rank_of(rank.stage + step, action.number)
        if action.kind.is_send:
            self.take(rank, action.kind, action.number)
            self.links[rank.number, peer, forwards].append(action.number)
            return True
        link = self.links[peer, rank.number, forwards]
        if not link:
            return False
        self.require(link.popleft() == action.number)
        rank.at_hand.add((action.kind, action.number))
        return True

    def reduce(self, rank: Rank, batch: int) -> bool:
        self.require(batch in self.schedule.batch_numbers)
        expected = self.shape.microbatches_of(rank.number, batch)
        self.require(sorted(rank.piled_up) == list(expected))
        rank.piled_up.clear()
        rank.handed_over.append(batch)
        return True

    def update(self, rank: Rank, batch: int) -> bool:
        self.require(batch in rank.handed_over and batch == rank.newest)
        if not all(batch in other.handed_over for other in self.ranks):
            return False
        kept = self.schedule.weight_versions
        overwritten = rank.banks.get((batch + 1) % kept)
        self.require(overwritten not in rank.in_flight.values())
        rank.newest = batch + 1
        rank.banks[rank.newest % kept] = rank.newest
        return True

    def take(self, rank: Rank, kind: Kind, number: int, *, unless: bool = False) -> None:
        if not unless:
            self.require((kind, number) in rank.at_hand)
            rank.at_hand.remove((kind, number))

    def require(self, holds: bool) -> None:
        if not holds:
            raise WrongError


def runs_on_ranks(schedule: Schedule) -> bool:
    """Whether ranks would do all that the schedule's shape and law demand, and end."""
    try:
        Ranks(schedule).run()
    except WrongError:
        return False
    return True
