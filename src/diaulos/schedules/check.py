"""The checker: proves, before any process starts, that a schedule keeps its promises.

Every forward and backward runs exactly once, on the right replica, with the right weight version,
which is alive; sends and receives of a link stand in the same order on both ends; no more is in
flight than promised; the gradients of a batch are handed over before those of the next are added;
each update comes after its batch's last backward and before its first use; and no rank waits in a
circle. Linear in the number of actions.
"""

from dataclasses import dataclass, field

from diaulos.errors import CheckError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.order import ScheduleError, execution_order
from diaulos.schedules.schedule import Schedule


def check(schedule: Schedule) -> None:
    """Nothing, or a `ScheduleError` that names the first wrong action."""
    _check_sizes(schedule)
    for rank, row in enumerate(schedule.actions):
        walk = _RankWalk(schedule, rank)
        for index, action in enumerate(row):
            problem = walk.problem_with(action)
            if problem:
                raise ScheduleError(schedule, rank, index, problem)
        missing = walk.missing()
        if missing:
            raise ScheduleError(schedule, rank, len(row), f"{missing} is missing")
    _check_links(schedule)
    for _ in execution_order(schedule):
        pass


def _check_sizes(schedule: Schedule) -> None:
    shape = schedule.shape
    for name, found, wanted in (
        ("rows of actions", len(schedule.actions), shape.ranks),
        ("in-flight limits", len(schedule.in_flight_limits), shape.stages),
    ):
        if found != wanted:
            raise CheckError(
                f"schedule {schedule.name!r} has {found} {name}; stages of {shape.replicas} "
                f"replicas need {wanted}"
            )


@dataclass
class _RankWalk:
    """The state of one rank while its actions are walked through."""

    schedule: Schedule
    rank: int
    done: set[tuple[Kind, int]] = field(default_factory=set)
    in_flight: set[int] = field(default_factory=set)
    updates: int = field(init=False)
    """How many updates the newest weights have seen."""

    def __post_init__(self) -> None:
        self.stage = self.schedule.shape.stage_of(self.rank)
        self.updates = self.schedule.first_batch
        self.local = {
            batch: self.schedule.shape.microbatches_of(self.rank, batch)
            for batch in self.schedule.batch_numbers
        }
        self.kinds = self._microbatch_kinds()
        self.needs = {kind: self._needed_before(kind) for kind in Kind}

    def problem_with(self, action: Action) -> str | None:
        """What is wrong with this action now, if anything; else it counts as done."""
        problem = self._misplaced(action) or self._out_of_order(action)
        if problem is None and action.kind.is_compute:
            problem = self._wrong_version(action) or self._count_in_flight(action)
        if problem is None and action.kind is Kind.UPDATE:
            problem = self._count_update(action)
        self.done.add((action.kind, action.number))
        return problem

    def missing(self) -> Action | None:
        """The first action that the rank should have done and did not."""
        for batch in self.schedule.batch_numbers:
            for kind in (*self.kinds, Kind.REDUCE, Kind.UPDATE):
                numbers = [batch] if kind.is_of_batch else self.local[batch]
                for number in numbers:
                    if (kind, number) not in self.done:
                        return Action(self.stage, kind, number)
        return None

    def _microbatch_kinds(self) -> list[Kind]:
        kinds = [Kind.FORWARD, Kind.BACKWARD]
        if self.stage > 0:
            kinds += [Kind.RECEIVE_FORWARD, Kind.SEND_BACKWARD]
        if self.stage < self.schedule.shape.stages - 1:
            kinds += [Kind.SEND_FORWARD, Kind.RECEIVE_BACKWARD]
        return kinds

    def _misplaced(self, action: Action) -> str | None:
        if action.stage != self.stage:
            return f"rank {self.rank} holds stage {self.stage}"
        if (action.kind, action.number) in self.done:
            return "it is done twice"
        if action.kind.is_of_batch:
            return None if action.number in self.local else f"there is no batch {action.number}"
        return self._of_another_rank(action)

    def _of_another_rank(self, action: Action) -> str | None:
        batch = action.number // self.schedule.shape.microbatches
        if batch not in self.local:
            return f"microbatch {action.number} is in no batch of this schedule"
        if action.number not in self.local[batch]:
            owner = self.schedule.shape.rank_of(self.stage, action.number)
            return f"microbatch {action.number} runs on rank {owner}"
        if action.kind not in self.kinds:
            return f"stage {self.stage} has no such neighbour"
        return None

    def _out_of_order(self, action: Action) -> str | None:
        needed = [(kind, action.number) for kind in self.needs[action.kind]]
        if action.kind is Kind.REDUCE:
            needed = [(Kind.BACKWARD, microbatch) for microbatch in self.local[action.number]]
        elif action.kind is Kind.BACKWARD:
            batch_before = action.number // self.schedule.shape.microbatches - 1
            if batch_before in self.local:
                needed.append((Kind.REDUCE, batch_before))
        for kind, number in needed:
            if (kind, number) not in self.done:
                return f"{Action(self.stage, kind, number)} must come first"
        return None

    def _needed_before(self, kind: Kind) -> list[Kind]:
        needs = {
            Kind.FORWARD: [Kind.RECEIVE_FORWARD],
            Kind.SEND_FORWARD: [Kind.FORWARD],
            Kind.BACKWARD: [Kind.FORWARD, Kind.RECEIVE_BACKWARD],
            Kind.SEND_BACKWARD: [Kind.BACKWARD],
            Kind.UPDATE: [Kind.REDUCE],
        }
        possible = [*self.kinds, Kind.REDUCE]
        return [needed for needed in needs.get(kind, []) if needed in possible]

    def _wrong_version(self, action: Action) -> str | None:
        wanted = self.schedule.version_of(action.number)
        if action.version != wanted:
            return f"microbatch {action.number} computes with version {wanted}"
        if wanted > self.updates:
            return f"it needs version {wanted}, and the newest is {self.updates}"
        if wanted <= self.updates - self.schedule.weight_versions:
            return f"it needs version {wanted}, which {self.updates} has replaced"
        return None

    def _count_in_flight(self, action: Action) -> str | None:
        if action.kind is Kind.BACKWARD:
            self.in_flight.discard(action.number)
            return None
        self.in_flight.add(action.number)
        limit = self.schedule.in_flight_limits[self.stage]
        if len(self.in_flight) > limit:
            listed = ", ".join(map(str, sorted(self.in_flight)))
            return f"microbatches {listed} are in flight, and at most {limit} are promised"
        return None

    def _count_update(self, action: Action) -> str | None:
        if action.number != self.updates:
            return f"{Action(self.stage, Kind.UPDATE, self.updates)} must come first"
        self.updates += 1
        oldest = self.updates - self.schedule.weight_versions
        for microbatch in sorted(self.in_flight):
            if self.schedule.version_of(microbatch) <= oldest:
                return f"it replaces version {oldest}, which microbatch {microbatch} still uses"
        return None


def _check_links(schedule: Schedule) -> None:
    """The sends of each link stand in the order of its receives, so that no tags are needed."""
    shape = schedule.shape
    sent: dict[tuple[int, int, Kind], list[Action]] = {}
    for rank, row in enumerate(schedule.actions):
        for action in row:
            if action.kind.is_send:
                receive = action.matching_receive()
                receiver = shape.rank_of(receive.stage, receive.number)
                sent.setdefault((rank, receiver, action.kind), []).append(action)
    taken: dict[tuple[int, int, Kind], int] = dict.fromkeys(sent, 0)
    for rank, row in enumerate(schedule.actions):
        for index, action in enumerate(row):
            if action.kind.is_receive:
                send = action.matching_send()
                link = (shape.rank_of(send.stage, send.number), rank, send.kind)
                expected = sent[link][taken[link]]
                taken[link] += 1
                if expected != send:
                    problem = f"rank {link[0]} sends {expected} first on this link"
                    raise ScheduleError(schedule, rank, index, problem)
