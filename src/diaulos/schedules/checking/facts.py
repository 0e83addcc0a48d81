"""Where each action of a schedule stands, for the checker: tables over stages and microbatches."""

from functools import cached_property

import numpy as np

from diaulos.schedules.actions import Kind
from diaulos.schedules.columnar.columns import Flags, Numbers
from diaulos.schedules.schedule import Schedule


class Facts:
    """The columns of a schedule and where in them an action comes first.

    Positions count the actions of all ranks; `absent`, which is behind all of them, stands for
    what is not there.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.shape = schedule, schedule.shape
        self.columns = schedule.columns
        self.absent = len(self.columns.rank)
        self.index = np.arange(self.absent)
        shape = schedule.shape
        ranks = range(shape.ranks)
        self.position = np.array([shape.position_of(rank) for rank in ranks])[self.columns.rank]
        self.replica = np.array([shape.replica_of(rank) for rank in ranks])[self.columns.rank]
        self.homes = np.array(shape.homes)
        self.degrees = np.array([len(shape.ranks_of(stage)) for stage in range(shape.stages)])
        self.feeds = np.array([shape.is_handed_over(stage) for stage in range(shape.stages)])
        """Whether a stage sends to the next one."""

    def is_kind(self, *kinds: Kind) -> Flags:
        """Where the actions belong to the rank and are of one of these kinds."""
        return self.columns.is_kind(*kinds) & self.is_placed

    @cached_property
    def is_of_batch(self) -> Flags:
        """Where the number is that of a batch."""
        return self.columns.is_kind(Kind.REDUCE, Kind.UPDATE)

    @cached_property
    def is_held(self) -> Flags:
        """Where the stage is one of the rank's."""
        stage = self.columns.stage
        inside = (stage >= 0) & (stage < self.shape.stages)
        flags: Flags = inside & (self.homes[np.where(inside, stage, 0)] == self.position)
        return flags

    @cached_property
    def stage(self) -> Numbers:
        """The stage, or 0 where it is not one of the rank's."""
        return np.where(self.is_held, self.columns.stage, 0)

    @cached_property
    def batch(self) -> Numbers:
        """The batch, counted from the schedule's first one."""
        number = self.columns.number
        batch = np.where(self.is_of_batch, number, number // self.shape.microbatches)
        return batch - self.schedule.first_batch

    @cached_property
    def is_in_range(self) -> Flags:
        """Where the batch is one of the schedule's."""
        return (self.batch >= 0) & (self.batch < self.schedule.batches)

    @cached_property
    def is_local(self) -> Flags:
        """Where the microbatch is one of the rank's replica; everywhere for batches."""
        within = self.columns.number % self.shape.microbatches
        flags: Flags = self.is_of_batch | (within % self.degrees[self.stage] == self.replica)
        return flags

    @cached_property
    def has_neighbour(self) -> Flags:
        """Where the stage that a message goes to or comes from is on another rank."""
        ahead = self.columns.is_kind(Kind.SEND_FORWARD, Kind.RECEIVE_BACKWARD)
        behind = self.columns.is_kind(Kind.RECEIVE_FORWARD, Kind.SEND_BACKWARD)
        feeds_this = (self.stage > 0) & self.feeds[self.stage - 1]
        flags: Flags = ~(ahead & ~self.feeds[self.stage]) & ~(behind & ~feeds_this)
        return flags

    @cached_property
    def is_placed(self) -> Flags:
        """Where the action belongs to the rank."""
        return self.is_held & self.is_in_range & self.is_local & self.has_neighbour

    @cached_property
    def slot(self) -> Numbers:
        """The microbatch, counted from the schedule's first one, or 0 where it is not placed."""
        slot = self.columns.number - self.schedule.microbatch_numbers.start
        return np.where(self.is_placed & ~self.is_of_batch, slot, 0)

    @cached_property
    def _firsts(self) -> Numbers:
        """Positions by kind, stage and microbatch."""
        span = len(self.schedule.microbatch_numbers)
        table = np.full((len(Kind), self.shape.stages, span), self.absent)
        listed = (self.is_placed & ~self.is_of_batch).nonzero()[0][::-1]
        table[self.columns.kind[listed], self.stage[listed], self.slot[listed]] = listed
        return table

    @cached_property
    def _firsts_of_batches(self) -> Numbers:
        """Positions by kind, rank, stage and batch: every replica reduces and updates."""
        shape = self.shape
        table = np.full((2, shape.ranks * shape.chunks, self.schedule.batches), self.absent)
        listed = (self.is_placed & self.is_of_batch).nonzero()[0][::-1]
        kind = (self.columns.kind[listed] == Kind.UPDATE.code).astype(int)
        table[kind, self.seat[listed], self.batch[listed]] = listed
        return table

    @cached_property
    def seat(self) -> Numbers:
        """A number of each pair of rank and stage."""
        return self.columns.rank * self.shape.chunks + self.stage // self.shape.depth

    def first(self, kind: Kind) -> Numbers:
        """Where actions of a kind come first, by stage and microbatch."""
        table: Numbers = self._firsts[kind.code]
        return table

    def first_of_batch(self, kind: Kind) -> Numbers:
        """Where reductions or updates come first, by seat and batch."""
        table: Numbers = self._firsts_of_batches[int(kind is Kind.UPDATE)]
        return table

    @cached_property
    def gradient(self) -> Numbers:
        """Where the gradient of a stage's input is there, by stage and microbatch."""
        return np.minimum(self.first(Kind.BACKWARD), self.first(Kind.INPUT_BACKWARD))

    @cached_property
    def end(self) -> Numbers:
        """Where the last part of the backward comes, by stage and microbatch."""
        return np.minimum(self.first(Kind.BACKWARD), self.first(Kind.WEIGHT_BACKWARD))

    @cached_property
    def end_of_batch(self) -> Numbers:
        """Where the last backward of a batch comes, by seat and batch."""
        shape = self.shape
        table = np.empty((shape.ranks * shape.chunks, self.schedule.batches), np.int64)
        for stage in range(shape.stages):
            ranks = shape.ranks_of(stage)
            by_replica = self.end[stage].reshape(self.schedule.batches, -1, len(ranks))
            seats = np.array(ranks) * shape.chunks + stage // shape.depth
            table[seats] = by_replica.max(axis=1).T
        return table

    @cached_property
    def is_first(self) -> Flags:
        """Where an action that belongs to the rank comes for the first time."""
        first = self._firsts[self.columns.kind, self.stage, self.slot]
        update = (self.columns.kind == Kind.UPDATE.code).astype(int)
        batch = np.where(self.is_in_range, self.batch, 0)
        of_batch = self._firsts_of_batches[update, self.seat, batch]
        found = np.where(self.is_of_batch, of_batch, first)
        flags: Flags = self.is_placed & (found == self.index)
        return flags

    @cached_property
    def newest_version(self) -> Numbers:
        """How many updates the newest weights of the action's stage have seen, itself included."""
        updates = self.is_kind(Kind.UPDATE)
        chunk = self.stage // self.shape.depth
        counted = self.running(updates, np.zeros_like(updates), chunk)
        return self.schedule.first_batch + counted

    def running(self, more: Flags, less: Flags, group: Numbers | None = None) -> Numbers:
        """How many of `more` less those of `less` a rank has seen, each action included.

        Counted apart by the chunk of the stage where `group` is the chunks.
        """
        steps = more.astype(np.int64) - less
        if group is None:
            return self._running(steps)
        counts = np.zeros(self.absent, np.int64)
        for value in range(self.shape.chunks):
            chosen = group == value
            counts[chosen] = self._running(np.where(chosen, steps, 0))[chosen]
        return counts

    def _running(self, steps: Numbers) -> Numbers:
        total = np.concatenate(([0], np.cumsum(steps)))
        before = total[np.array(self.columns.starts[:-1])]
        counts: Numbers = total[1:] - before[self.columns.rank]
        return counts
