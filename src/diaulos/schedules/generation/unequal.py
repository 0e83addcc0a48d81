"""The order of forwards and backwards where stages have unequal data-parallel degrees.

A strict alternation makes ranks wait there: what a replica needs next comes from replicas of
another count, in another rhythm. So ranks that take what is there are let run, in units of time in
which all stages keep up with each other, and the best order of a few is taken.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from diaulos.schedules.actions import Kind
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generation.alternation import alternating
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import completed
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

_BATCHES_TRIED = 3


def unequal_orders(law: Schedule, *, batches_open: int) -> list[list[Step]]:
    """The order of each rank, its microbatches counted through all batches.

    `law` says how many may be in flight, and has no actions. A forward waits until all but the
    `batches_open` last batches are done by all ranks: 1 where each batch is flushed, 2 for 2BW.
    The best of three ways is taken: forwards first, backwards first, one of each in turn.
    """

    def ways(batches: range) -> Iterator[list[list[Step]]]:
        for forwards_first in (True, False):
            run = _Run(
                law,
                batches,
                caps=law.in_flight_limits,
                batches_open=batches_open,
                forwards_first=forwards_first,
                is_halved=False,
            )
            yield run.to_its_end()
        yield _in_turn(law.shape, batches, is_flushed=batches_open == 1)

    return _best(law, ways)


def unequal_halved_orders(law: Schedule) -> list[list[Step]]:
    """The same with backwards in halves and a flush after each batch.

    Weight halves are done when nothing else can be. The best of four ways is taken: forwards or
    input halves first, and as many between these two as under 1F1B or as the limit allows.
    """

    def ways(batches: range) -> Iterator[list[list[Step]]]:
        for caps in (law.shape.in_flight, law.in_flight_limits):
            for forwards_first in (True, False):
                run = _Run(
                    law,
                    batches,
                    caps=caps,
                    batches_open=1,
                    forwards_first=forwards_first,
                    is_halved=True,
                )
                yield run.to_its_end()

    return _best(law, ways)


def _best(law: Schedule, ways: Callable[[range], Iterator[list[list[Step]]]]) -> list[list[Step]]:
    """The way that takes least for the first batches, for all batches."""
    tried = range(min(law.batches, _BATCHES_TRIED))
    trial = replace(law, first_batch=0, batches=len(tried))
    costs = [StageCosts(forward_seconds=d, backward_seconds=2 * d) for d in law.shape.replicas]
    spans = [
        Simulator(completed(trial, orders)).makespan_seconds(costs, Link())
        for orders in ways(tried)
    ]
    best = spans.index(min(spans))
    return next(itertools.islice(ways(law.batch_numbers), best, None))


def _in_turn(shape: PipelineShape, batches: range, *, is_flushed: bool) -> list[list[Step]]:
    """One forward and one backward in turn after the warm-up."""
    orders = []
    for rank in range(shape.ranks):
        stage = shape.stage_of(rank)
        each = [list(shape.microbatches_of(rank, batch)) for batch in batches]
        streams = each if is_flushed else [list(itertools.chain.from_iterable(each))]
        warm_up = shape.in_flight[stage] - 1
        orders.append(
            [
                (kind, stage, stream[index])
                for stream in streams
                for kind, _, index in alternating(stage, len(stream), warm_up)
            ]
        )
    return orders


class _Run:
    """The ranks at work, one stage each, taking what is there.

    On a stage of d replicas a forward takes d and a backward 2 d, a half of it d. All are done in
    the order of the microbatches; where both could be done, forwards or backwards come first.
    """

    def __init__(
        self,
        law: Schedule,
        batches: range,
        *,
        caps: Sequence[int],
        batches_open: int,
        forwards_first: bool,
        is_halved: bool,
    ) -> None:
        self.shape, self.limits, self.caps = law.shape, law.in_flight_limits, caps
        self.batches_open, self.forwards_first = batches_open, forwards_first
        self.is_halved = is_halved
        shape = law.shape
        self.streams = [
            [number for batch in batches for number in shape.microbatches_of(rank, batch)]
            for rank in range(shape.ranks)
        ]
        self.orders: list[list[Step]] = [[] for _ in self.streams]
        self.forwards, self.backwards = [0] * shape.ranks, [0] * shape.ranks
        self.weights = [0] * shape.ranks if is_halved else self.backwards
        """Backwards that have ended; of whole ones all that are done."""
        self.is_busy = [False] * shape.ranks
        self.outputs: set[tuple[int, int]] = set()
        """Stage and microbatch of forwards that are done."""
        self.gradients: set[tuple[int, int]] = set()
        """Stage and microbatch of backwards whose gradient of the input is there."""
        self.left = dict.fromkeys(batches, shape.microbatches * shape.stages)
        """Backwards to come, by batch."""
        self.oldest = batches.start
        """The first batch that is not done by all ranks."""
        self.ends: list[tuple[int, int, Step]] = []
        """A heap of when which rank ends what."""

    def to_its_end(self) -> list[list[Step]]:
        """What each rank has done when all is done."""
        woken = set(range(self.shape.ranks))
        now = 0
        while True:
            for rank in sorted(woken):
                if not self.is_busy[rank]:
                    self._start(rank, now)
            if not self.ends:
                return self.orders
            now = self.ends[0][0]
            woken = set()
            while self.ends and self.ends[0][0] == now:
                _, rank, step = heapq.heappop(self.ends)
                woken |= self._finish(rank, step)

    def _start(self, rank: int, now: int) -> None:
        stage = self.shape.stage_of(rank)
        can_go_back = self._can_go_backward(rank, stage)
        if not (can_go_back and not self.forwards_first) and self._can_go_forward(rank, stage):
            kind, counts, takes = Kind.FORWARD, self.forwards, 1
        elif can_go_back and self.is_halved:
            kind, counts, takes = Kind.INPUT_BACKWARD, self.backwards, 1
        elif can_go_back:
            kind, counts, takes = Kind.BACKWARD, self.backwards, 2
        elif self.weights[rank] < self.backwards[rank]:
            kind, counts, takes = Kind.WEIGHT_BACKWARD, self.weights, 1
        else:
            return
        step = kind, stage, self.streams[rank][counts[rank]]
        counts[rank] += 1
        self.orders[rank].append(step)
        self.is_busy[rank] = True
        heapq.heappush(self.ends, (now + takes * self.shape.replicas[stage], rank, step))

    def _can_go_forward(self, rank: int, stage: int) -> bool:
        done = self.forwards[rank]
        if (
            done == len(self.streams[rank])
            or done - self.weights[rank] >= self.limits[stage]
            or done - self.backwards[rank] >= self.caps[stage]
        ):
            return False
        number = self.streams[rank][done]
        if number // self.shape.microbatches >= self.oldest + self.batches_open:
            return False
        return stage == 0 or (stage - 1, number) in self.outputs

    def _can_go_backward(self, rank: int, stage: int) -> bool:
        done = self.backwards[rank]
        if done == self.forwards[rank]:
            return False
        number = self.streams[rank][done]
        return stage == self.shape.stages - 1 or (stage + 1, number) in self.gradients

    def _finish(self, rank: int, step: Step) -> set[int]:
        """Note what a rank has done; the ranks that may go on."""
        kind, stage, number = step
        self.is_busy[rank] = False
        woken = {rank}
        if kind is Kind.FORWARD:
            self.outputs.add((stage, number))
            if stage + 1 < self.shape.stages:
                woken.add(self.shape.rank_of(stage + 1, number))
            return woken
        if kind.gives_gradient:
            self.gradients.add((stage, number))
            if stage > 0:
                woken.add(self.shape.rank_of(stage - 1, number))
        if kind.ends_backward:
            batch = number // self.shape.microbatches
            self.left[batch] -= 1
            if self.left[batch] == 0:
                self.oldest = batch + 1
                woken |= set(range(self.shape.ranks))
        return woken
