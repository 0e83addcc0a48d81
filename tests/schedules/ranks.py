"""What ranks with queues between them would do with a schedule, written apart from the checker.

A rank does its actions in order. Messages of a link arrive in the order in which they were sent,
without tags. Weights lie in banks that updates overwrite, gradients pile up until they are handed
over, and a reduction is a collective of all ranks, or of those of a stage.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule


class WrongError(Exception):
    """A rank cannot do its next action, or all wait for ever."""


@dataclass
class Held:
    """A stage on a rank."""

    banks: dict[int, int]
    newest: int
    in_flight: dict[int, int] = field(default_factory=dict)
    half_done: set[int] = field(default_factory=set)
    piled_up: list[int] = field(default_factory=list)
    handed_over: list[int] = field(default_factory=list)


@dataclass
class Rank:
    number: int
    stages: dict[int, Held]
    position: int = 0
    done: list[Action] = field(default_factory=list)
    at_hand: set[tuple[int, bool, int]] = field(default_factory=set)
    """Tensors for a stage to use or to send: stage, whether of a forward, microbatch."""
    to_send: set[tuple[int, bool, int]] = field(default_factory=set)

    @property
    def in_flight(self) -> int:
        return sum(len(held.in_flight) for held in self.stages.values())


class Ranks:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.shape = schedule, schedule.shape
        self.links: dict[tuple[int, int, bool], deque[tuple[int, int]]] = defaultdict(deque)
        self.ranks = [
            Rank(rank, {stage: self.hold(stage) for stage in self.shape.stages_of(rank)})
            for rank in range(self.shape.ranks)
        ]

    def kept(self, stage: int) -> int:
        return self.schedule.gradient_delays[stage] + 1

    def hold(self, stage: int) -> Held:
        first, kept = self.schedule.first_batch, self.kept(stage)
        versions = range(max(first - kept + 1, 0), first + 1)
        return Held({version % kept: version for version in versions}, newest=first)

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
            self.require(not rank.at_hand and not rank.to_send)
            for held in rank.stages.values():
                self.require(held.handed_over == list(self.schedule.batch_numbers))
                self.require(held.newest == self.schedule.batch_numbers.stop)
                self.require(not held.in_flight and not held.piled_up)
        self.require(not any(self.links.values()))

    def act(self, rank: Rank, action: Action) -> bool:
        """Whether the action could be done now; it waits otherwise."""
        self.require(action.stage in rank.stages and action not in rank.done)
        if action.kind is Kind.REDUCE:
            return self.reduce(rank, action)
        if action.kind is Kind.UPDATE:
            return self.update(rank, action)
        batch = action.number // self.shape.microbatches
        self.require(batch in self.schedule.batch_numbers)
        self.require(action.number in self.shape.microbatches_of(rank.number, batch))
        if action.kind.is_compute:
            self.compute(rank, action)
            return True
        return self.message(rank, action)

    def compute(self, rank: Rank, action: Action) -> None:
        held, number = rank.stages[action.stage], action.number
        delay = self.schedule.gradient_delays[action.stage]
        version = max(number // self.shape.microbatches - delay, 0)
        self.require(action.version == version)
        self.require(held.banks.get(version % self.kept(action.stage)) == version)
        if action.kind is Kind.FORWARD:
            self.take(rank, action.stage, number, forwards=True)
            self.require(number not in held.in_flight)
            held.in_flight[number] = version
            position = self.shape.position_of(rank.number)
            self.require(rank.in_flight <= self.schedule.in_flight_limits[position])
            self.give(rank, action.stage + 1, number, forwards=True)
        else:
            self.require(held.in_flight.get(number) == version)
            self.backward(rank, held, action)

    def backward(self, rank: Rank, held: Held, action: Action) -> None:
        number = action.number
        if action.kind is Kind.WEIGHT_BACKWARD:
            self.require(number in held.half_done)
            held.half_done.remove(number)
        else:
            self.require(number not in held.half_done)
            self.take(rank, action.stage, number, forwards=False)
            self.give(rank, action.stage - 1, number, forwards=False)
        if action.kind is Kind.INPUT_BACKWARD:
            held.half_done.add(number)
        else:
            del held.in_flight[number]
            held.piled_up.append(number)

    def give(self, rank: Rank, stage: int, number: int, *, forwards: bool) -> None:
        """Leave a tensor where the stage that needs it, or the send to it, finds it."""
        if 0 <= stage < self.shape.stages:
            shelf = rank.at_hand if stage in rank.stages else rank.to_send
            shelf.add((stage, forwards, number))

    def take(self, rank: Rank, stage: int, number: int, *, forwards: bool) -> None:
        if (stage > 0) if forwards else (stage < self.shape.stages - 1):
            self.require((stage, forwards, number) in rank.at_hand)
            rank.at_hand.remove((stage, forwards, number))

    def message(self, rank: Rank, action: Action) -> bool:
        forwards = action.kind in (Kind.SEND_FORWARD, Kind.RECEIVE_FORWARD)
        if action.kind.is_send:
            stage = action.stage + (1 if forwards else -1)
            tensor = (stage, forwards, action.number)
            self.require(tensor in rank.to_send)
            rank.to_send.remove(tensor)
            peer = self.shape.rank_of(stage, action.number)
            self.links[rank.number, peer, forwards].append((stage, action.number))
            return True
        stage = action.stage - (1 if forwards else -1)
        self.require(0 <= stage < self.shape.stages)
        link = self.links[self.shape.rank_of(stage, action.number), rank.number, forwards]
        if not link:
            return False
        self.require(link.popleft() == (action.stage, action.number))
        rank.at_hand.add((action.stage, forwards, action.number))
        return True

    def reduce(self, rank: Rank, action: Action) -> bool:
        held = rank.stages[action.stage]
        self.require(action.number in self.schedule.batch_numbers)
        expected = self.shape.microbatches_of(rank.number, action.number)
        self.require(sorted(held.piled_up) == list(expected))
        held.piled_up.clear()
        held.handed_over.append(action.number)
        return True

    def update(self, rank: Rank, action: Action) -> bool:
        held, batch = rank.stages[action.stage], action.number
        self.require(batch in held.handed_over and batch == held.newest)
        alone = self.schedule.updates_stage_by_stage
        for other in self.ranks:
            for stage, theirs in other.stages.items():
                if (stage == action.stage or not alone) and batch not in theirs.handed_over:
                    return False
        kept = self.kept(action.stage)
        self.require(held.banks.get((batch + 1) % kept) not in held.in_flight.values())
        held.newest = batch + 1
        held.banks[held.newest % kept] = held.newest
        return True

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
