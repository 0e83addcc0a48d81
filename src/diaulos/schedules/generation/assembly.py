"""All actions of all ranks as columns, put together from the order of their computations.

Around each computation stand the updates that make its weight version, the receive before it, the
send behind it, and behind the last backward of a batch the reduction. How many of each there are
says where each action stands; so nothing is done action by action.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from diaulos.schedules.actions import Kind
from diaulos.schedules.columnar.columns import NO_VERSION, Columns, Flags, Numbers, are_of_kind
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape

Step = tuple[Kind, int, int]
"""A computation: its kind, its stage, and which microbatch of the rank it is, from 0."""
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Computations of a rank in their order, as columns."""

    kind: Numbers
    stage: Numbers
    number: Numbers

    @staticmethod
    def of(order: Iterable[Step]) -> "Steps":
        """The columns of an order."""
        listed = list(order)
        count = len(listed)
        return Steps(
            kind=np.fromiter((kind.code for kind, _, _ in listed), np.int64, count),
            stage=np.fromiter((stage for _, stage, _ in listed), np.int64, count),
            number=np.fromiter((number for _, _, number in listed), np.int64, count),
        )


def assembled(empty: Schedule, rows: Sequence[Steps]) -> Columns:
    """The columns of the schedule whose ranks compute these steps.

    Their microbatches are counted through all batches and ranks.
    """
    return _Assembly(empty, rows).columns()


class _Assembly:
    """The computations of all ranks, rank by rank, and what stands around each."""

    def __init__(self, empty: Schedule, rows: Sequence[Steps]) -> None:
        shape = empty.shape
        self.schedule, self.shape = empty, shape
        lengths = [len(row.kind) for row in rows]
        self.starts = [*accumulate(lengths, initial=0)]
        self.rank = np.repeat(np.arange(shape.ranks), lengths)
        self.kind = np.concatenate([row.kind for row in rows])
        self.stage = np.concatenate([row.stage for row in rows])
        self.number = np.concatenate([row.number for row in rows])
        delays = np.array(empty.gradient_delays)[self.stage]
        self.version = np.maximum(self.number // shape.microbatches - delays, 0)
        receives, sends = self._messages()
        self.receive = receives[self.kind, self.stage]
        self.send = sends[self.kind, self.stage]
        """The codes of the messages around each computation, or `_NONE`."""
        self._find_updates()

    def _messages(self) -> tuple[Numbers, Numbers]:
        """By kind of computation and stage, the receive before it and the send behind it."""
        shape = self.shape
        feeds = np.array([shape.is_handed_over(stage) for stage in range(shape.stages)])
        is_fed = np.concatenate(([False], feeds[:-1]))
        receives = np.full((len(Kind), shape.stages), _NONE)
        sends = np.full((len(Kind), shape.stages), _NONE)
        receives[Kind.FORWARD.code, is_fed] = Kind.RECEIVE_FORWARD.code
        sends[Kind.FORWARD.code, feeds] = Kind.SEND_FORWARD.code
        for kind in (Kind.BACKWARD, Kind.INPUT_BACKWARD):
            receives[kind.code, feeds] = Kind.RECEIVE_BACKWARD.code
            sends[kind.code, is_fed] = Kind.SEND_BACKWARD.code
        return receives, sends

    def _find_updates(self) -> None:
        """Where batches are reduced, and how many updates stand before and behind each step.

        Updates are made up to the version of a forward; behind the reduction where stages update
        on their own; and at the end those that are left.
        """
        first = self.schedule.first_batch
        seats = _Seats(self.shape, self.rank, self.stage)
        ended = seats.counted(self._is_kind(Kind.BACKWARD, Kind.WEIGHT_BACKWARD))
        batches, rest = np.divmod(ended, seats.microbatches[self.rank])
        reduces = self._is_kind(Kind.BACKWARD, Kind.WEIGHT_BACKWARD) & (rest == 0)
        self.reduced_batch = np.where(reduces, first + batches - 1, _NONE)
        is_forward = self._is_kind(Kind.FORWARD)
        needed = np.where(is_forward, self.version, first)
        if self.schedule.updates_stage_by_stage:
            needed = np.where(reduces, first + batches, needed)
        made, self.updates_made, self.made_in_all = seats.most_so_far(needed, first)
        added = made - self.updates_made
        self.updates_before = np.where(is_forward, added, 0)
        self.updates_behind = np.where(is_forward, 0, added)

    def _is_kind(self, *kinds: Kind) -> Flags:
        return are_of_kind(self.kind, *kinds)

    @cached_property
    def _left(self) -> Numbers:
        """Updates at the end, by rank and chunk."""
        stop = self.schedule.batch_numbers.stop
        left: Numbers = np.maximum(stop - self.made_in_all, 0)
        return left.reshape(self.shape.ranks, -1)

    def columns(self) -> Columns:
        """All actions in their places."""
        receives, sends = self.receive != _NONE, self.send != _NONE
        reduces = self.reduced_batch != _NONE
        around = self.updates_before + receives + sends + reduces + self.updates_behind
        tails = self._left.sum(axis=1)
        total = np.concatenate(([0], np.cumsum(around + 1)))
        ended = np.concatenate(([0], np.cumsum(tails)))
        starts = total[self.starts] + ended
        place = total[:-1] + ended[self.rank] + self.updates_before + receives
        behind = place + sends
        into = _Places(starts)
        into.put(place, self.kind, self.stage, self.number)
        into.version[place] = self.version
        for places, kinds in ((place - receives, self.receive), (behind, self.send)):
            chosen = (kinds != _NONE).nonzero()[0]
            into.put(places[chosen], kinds[chosen], self.stage[chosen], self.number[chosen])
        chosen = reduces.nonzero()[0]
        behind += reduces
        stage = self.stage[chosen]
        into.put(behind[chosen], Kind.REDUCE.code, stage, self.reduced_batch[chosen])
        for places, counts in (
            (place - receives - self.updates_before, self.updates_before),
            (behind + 1, self.updates_behind),
        ):
            into.put_updates(places, counts, self.stage, self.updates_made)
        seats = [stage for rank in range(self.shape.ranks) for stage in self.shape.stages_of(rank)]
        left = self._left.ravel()
        lies_behind = np.cumsum(self._left[:, ::-1], axis=1)[:, ::-1].ravel()
        ends = np.repeat(starts[1:], self.shape.chunks) - lies_behind
        into.put_updates(ends, left, np.array(seats), self.made_in_all)
        return into.columns()


class _Seats:
    """Sums over the steps of each pair of rank and stage, in the order of the rank."""

    def __init__(self, shape: PipelineShape, rank: Numbers, stage: Numbers) -> None:
        seat = rank * shape.chunks + stage // shape.depth
        self.order = np.argsort(seat, kind="stable")
        """The steps of a seat stand together in it."""
        self.seat = seat[self.order]
        bounds = np.searchsorted(self.seat, np.arange(shape.ranks * shape.chunks + 1))
        self.begin, self.end = bounds[:-1], bounds[1:]
        degrees = [shape.replicas[shape.position_of(rank)] for rank in range(shape.ranks)]
        self.microbatches = shape.microbatches // np.array(degrees)
        """Of a batch, by rank."""

    def counted(self, flags: Flags) -> Numbers:
        """How many a seat has seen of the flagged steps, each step included."""
        total = np.concatenate(([0], np.cumsum(flags[self.order])))
        return self._by_step(total[1:] - total[self.begin][self.seat])

    def most_so_far(self, values: Numbers, least: int) -> tuple[Numbers, Numbers, Numbers]:
        """The most that a seat has seen with each step, before it, and in the end."""
        if not len(values):
            return values, values, np.full(len(self.begin), least)
        # What comes on the next seat is lifted above all that was before.
        lift = self.seat * (int(values.max()) + 1)
        most = np.maximum.accumulate(np.maximum(values[self.order], least) + lift) - lift
        before = np.concatenate(([least], most[:-1]))
        is_used = self.end > self.begin
        before[self.begin[is_used]] = least
        in_all = np.where(is_used, most[self.end - 1], least)
        return self._by_step(most), self._by_step(before), in_all

    def _by_step(self, values: Numbers) -> Numbers:
        found = np.empty_like(values)
        found[self.order] = values
        return found


class _Places:
    """The columns while they are filled."""

    def __init__(self, starts: Numbers) -> None:
        self.starts, count = starts, int(starts[-1])
        self.kind, self.stage, self.number = (np.empty(count, np.int64) for _ in range(3))
        self.version = np.full(count, NO_VERSION)

    def put(self, place: Numbers, kind: Numbers | int, stage: Numbers, number: Numbers) -> None:
        self.kind[place], self.stage[place], self.number[place] = kind, stage, number

    def put_updates(self, place: Numbers, counts: Numbers, stage: Numbers, first: Numbers) -> None:
        """From each place on so many updates, the first of this number."""
        chosen = counts.nonzero()[0]
        counts = counts[chosen]
        each = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = np.repeat(chosen, counts)
        self.put(place[chosen] + each, Kind.UPDATE.code, stage[chosen], first[chosen] + each)

    def columns(self) -> Columns:
        starts = self.starts
        return Columns(
            starts=tuple(starts.tolist()),
            rank=np.repeat(np.arange(len(starts) - 1), np.diff(starts)),
            stage=self.stage,
            kind=self.kind,
            number=self.number,
            version=self.version,
        )
