"""The simulator: when every action of a schedule happens, and what each rank then holds."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat

import numpy as np

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.causality.order import Stretch, stretches
from diaulos.schedules.causality.turns import Turns
from diaulos.schedules.columnar.columns import Numbers
from diaulos.schedules.costs import Links, StageCosts, border_links, message_bytes
from diaulos.schedules.events import Event, Events
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.timeline import MemoryPoint, Resident, Timeline

Scale = Callable[[Action], float]
"""What the seconds of a computation are multiplied by: 2.0 for a microbatch twice as long."""

_LAST_COMPUTE = Kind.WEIGHT_BACKWARD.code
_REDUCE, _UPDATE = Kind.REDUCE.code, Kind.UPDATE.code
_COMPUTES, _SENDS, _RECEIVES, _REDUCES, _UPDATES = range(5)
"""What actions do to the clock of their rank."""


def simulate(
    schedule: Schedule, costs: Sequence[StageCosts], links: Links, scale: Scale | None = None
) -> Timeline:
    """The timeline of a schedule whose stages have these costs.

    Each rank does its actions in order. Sends and reductions run beside the computations; a
    receive waits for its message and an update for the reductions of all ranks. Events are the
    computations and updates. Raises `ScheduleError` where ranks wait for each other for ever.
    """
    return Simulator(schedule).timeline(costs, links, scale)


class Simulator:
    """A schedule made ready to be simulated many times, with other costs each time.

    `order` is what `check` gives, where that is at hand.
    """

    def __init__(self, schedule: Schedule, order: Sequence[Stretch] | None = None) -> None:
        self.schedule = schedule
        columns = schedule.columns
        self._stretches = stretches(schedule) if order is None else order
        sends = columns.is_kind(Kind.SEND_FORWARD, Kind.SEND_BACKWARD)
        receives = columns.is_kind(Kind.RECEIVE_FORWARD, Kind.RECEIVE_BACKWARD)
        self._does: list[int] = np.select(
            [sends, receives, columns.kind == _REDUCE, columns.kind == _UPDATE],
            [_SENDS, _RECEIVES, _REDUCES, _UPDATES],
            _COMPUTES,
        ).tolist()
        self._partner = schedule.partners
        self._lane = self._lanes().tolist()
        self._border = (columns.stage - (columns.kind == Kind.SEND_BACKWARD.code)).tolist()
        computes = columns.kind <= _LAST_COMPUTE
        self._computes = computes.nonzero()[0]
        self._sent: Numbers = sends.nonzero()[0]
        self._shown: Numbers = (computes | (columns.kind == _UPDATE)).nonzero()[0]
        self._sender = self._partner.tolist()
        self._turns_of: dict[tuple[bool, ...], Turns] = {}

    def timeline(
        self, costs: Sequence[StageCosts], links: Links, scale: Scale | None = None
    ) -> Timeline:
        """The timeline where the stages have these costs."""
        start, end = self._times(costs, links, scale)
        schedule = self.schedule
        columns, times = schedule.columns, (np.array(start), np.array(end))
        events = Events(columns, self._shown, *times)
        return Timeline(
            name=schedule.name,
            microbatches=schedule.shape.microbatches,
            events=events,
            messages=Events(columns, self._sent, *times),
            memory=tuple(self._memory(events, costs)),
            resident=_residents(schedule, costs),
        )

    def makespan_seconds(self, costs: Sequence[StageCosts], links: Links) -> float:
        """From the start to the last end of a computation or update, without the timeline."""
        _, end = self._times(costs, links, None)
        return float(np.array(end)[self._shown].max())

    def _lanes(self) -> Numbers:
        """What an action shares with others: the path of a send, the batch of a reduction."""
        schedule, columns = self.schedule, self.schedule.columns
        receiver = columns.rank[np.maximum(self._partner, 0)]
        paths = columns.rank * schedule.shape.ranks + receiver
        batches = columns.number - schedule.first_batch
        if schedule.updates_stage_by_stage:
            batches = batches * schedule.shape.stages + columns.stage
        return np.where(columns.kind >= _REDUCE, batches, paths)

    def _seconds(
        self, costs: Sequence[StageCosts], links: Links, scale: Scale | None
    ) -> list[float]:
        """Of every action; of a send how long it takes the link."""
        stages = self.schedule.shape.stages
        if len(costs) != stages:
            raise InputError(
                f"there are costs of {len(costs)} stages", f"the schedule has {stages}"
            )
        table = np.zeros((len(Kind), stages))
        for stage, cost in enumerate(costs):
            table[Kind.FORWARD.code, stage] = cost.forward_seconds
            table[Kind.BACKWARD.code, stage] = cost.backward_seconds
            table[Kind.INPUT_BACKWARD.code, stage] = cost.input_seconds
            table[Kind.WEIGHT_BACKWARD.code, stage] = cost.weight_seconds
            table[_REDUCE, stage] = cost.reduce_seconds
            table[_UPDATE, stage] = cost.update_seconds
        for border, link in enumerate(border_links(links, stages)):
            taken = link.seconds(message_bytes(costs, border))
            table[Kind.SEND_FORWARD.code, border] = taken
            table[Kind.SEND_BACKWARD.code, border + 1] = taken
        columns = self.schedule.columns
        seconds: list[float] = table[columns.kind, columns.stage].tolist()
        if scale is not None:
            for index in self._computes.tolist():
                rank, place = columns.place(index)
                seconds[index] *= scale(self.schedule.actions[rank][place])
        return seconds

    def _times(
        self, costs: Sequence[StageCosts], links: Links, scale: Scale | None
    ) -> tuple["array[float]", "array[float]"]:
        """Start and end of every action; of a send from when it takes the link to its arrival."""
        seconds = self._seconds(costs, links, scale)
        does, sender, lane, border = self._does, self._sender, self._lane, self._border
        borders = border_links(links, self.schedule.shape.stages)
        is_shared = tuple(
            not link.duplex and link.seconds(message_bytes(costs, place)) > 0
            for place, link in enumerate(borders)
        )
        latency = [link.latency_seconds for link in borders]
        overlaps = [link.overlaps for link in borders]
        start, end = array("d", seconds), array("d", seconds)
        ranks = self.schedule.shape.ranks
        clock, reducer_free = [0.0] * ranks, [0.0] * ranks
        lane_free: dict[int, float] = {}
        reduced: dict[int, float] = {}
        order: Iterable[Stretch] = self._stretches
        if any(is_shared):
            turns = self._turns(is_shared)
            lane, order = turns.lane, turns.in_order(clock)
        for rank, begin, stop in order:
            now = clock[rank]
            for index in range(begin, stop):
                what = does[index]
                if what == _COMPUTES:
                    start[index] = now
                    now += seconds[index]
                    end[index] = now
                elif what == _SENDS:
                    path = lane[index]
                    free = lane_free.get(path, 0.0)
                    began = free if free > now else now  # noqa: FURB136 - max is a slow call
                    start[index] = began
                    left = began + seconds[index]
                    lane_free[path] = left
                    end[index] = left + latency[border[index]]
                    if not overlaps[border[index]]:
                        now = left
                elif what == _RECEIVES:
                    arrival = end[sender[index]]
                    now = arrival if arrival > now else now  # noqa: FURB136 - max is a slow call
                elif what == _REDUCES:
                    done = max(now, reducer_free[rank]) + seconds[index]
                    reducer_free[rank] = done
                    reduced[lane[index]] = max(done, reduced.get(lane[index], 0.0))
                else:
                    start[index] = max(now, reduced[lane[index]])
                    now = end[index] = start[index] + seconds[index]
            clock[rank] = now
        return start, end

    def _turns(self, is_shared: tuple[bool, ...]) -> Turns:
        """The order of time where both directions over some borders share a link."""
        if is_shared not in self._turns_of:
            columns, ranks = self.schedule.columns, self.schedule.shape.ranks
            sends = columns.is_kind(Kind.SEND_FORWARD, Kind.SEND_BACKWARD)
            shared = sends & np.append(is_shared, False)[self._border]
            receiver = columns.rank[np.maximum(self._partner, 0)]
            pair = np.minimum(columns.rank, receiver) * ranks + np.maximum(columns.rank, receiver)
            lane: list[int] = np.where(shared, pair, self._lane).tolist()
            found = Turns(columns, self._partner, lane=lane, is_shared=shared)
            self._turns_of[is_shared] = found
        return self._turns_of[is_shared]

    def _memory(
        self, events: Sequence[Event], costs: Sequence[StageCosts]
    ) -> Iterator[MemoryPoint]:
        """What each rank holds from which moment on; nothing where no bytes are known."""
        residents = _residents(self.schedule, costs)
        held = [resident.bytes for resident in residents]
        activations = [cost.activation_bytes for cost in costs]
        if not any(held) and not any(activations):
            return
        yield from map(MemoryPoint, range(len(held)), repeat(0.0), held)
        for event in events:
            rank, kind = event.rank, event.action.kind
            if kind is Kind.FORWARD:
                held[rank] += activations[event.action.stage]
                yield MemoryPoint(rank, event.start_seconds, held[rank])
            elif kind.ends_backward:
                held[rank] -= activations[event.action.stage]
                yield MemoryPoint(rank, event.end_seconds, held[rank])


def _residents(schedule: Schedule, costs: Sequence[StageCosts]) -> tuple[Resident, ...]:
    """What each rank holds all the time; nothing where no bytes are known."""
    if not any(cost.fixed_bytes or cost.version_bytes or cost.activation_bytes for cost in costs):
        return ()
    shape, kept = schedule.shape, schedule.weight_versions
    return tuple(
        Resident(
            fixed_bytes=sum(costs[stage].fixed_bytes for stage in shape.stages_of(rank)),
            versions_bytes=sum(
                costs[stage].version_bytes * (kept[stage] - 1) for stage in shape.stages_of(rank)
            ),
        )
        for rank in range(shape.ranks)
    )
