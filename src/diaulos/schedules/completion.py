"""From the order of a rank's computations to all its actions.

A generator gives only the order of forwards and backwards. What follows from it is added here, by
one code for all of them: the sends and receives around each computation, the reduction after a
stage's last backward of a batch, and the update before the first forward that needs it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape

Step = tuple[Kind, int, int]
"""A computation: its kind, its stage, and which microbatch of the rank it is, from 0."""
Order = Sequence[Step]


def flushed(
    name: str,
    shape: PipelineShape,
    batches: range,
    *,
    order_of: Callable[[int], Order],
    limits: Sequence[int],
) -> Schedule:
    """The schedule whose ranks compute each batch in the order of their position.

    Nothing is in flight between two batches. `limits` are the in-flight limits by position.
    """
    orders = [order_of(position) for position in range(shape.depth)]
    return completed(
        flushed_law(name, shape, batches, limits),
        (
            batch_by_batch(shape, rank, orders[shape.position_of(rank)], batches)
            for rank in range(shape.ranks)
        ),
    )


def flushed_law(name: str, shape: PipelineShape, batches: range, limits: Sequence[int]) -> Schedule:
    """The promises of a schedule with a flush after each batch, without its actions."""
    return Schedule(
        name=name,
        shape=shape,
        first_batch=batches.start,
        batches=len(batches),
        gradient_delays=(0,) * shape.stages,
        in_flight_limits=tuple(limits),
        actions=(),
    )


def batch_by_batch(shape: PipelineShape, rank: int, order: Order, batches: range) -> Iterator[Step]:
    """An order of one batch, repeated, its microbatches counted through all batches and ranks."""
    for batch in batches:
        numbers = shape.microbatches_of(rank, batch)
        for kind, stage, index in order:
            yield kind, stage, numbers[index]


def completed(empty: Schedule, orders: Iterable[Iterable[Step]]) -> Schedule:
    """The schedule whose ranks compute in these orders, with all that follows from them.

    The microbatches of the orders are counted through all batches and ranks.
    """
    rows = (tuple(_Row(empty, rank).of(order)) for rank, order in enumerate(orders))
    return replace(empty, actions=tuple(rows))


class _Row:
    """The actions of one rank while they are put together."""

    def __init__(self, schedule: Schedule, rank: int) -> None:
        shape = schedule.shape
        self.schedule = schedule
        self.each = len(shape.microbatches_of(rank, 0))
        self.stages = shape.stages_of(rank)
        self.backwards = dict.fromkeys(self.stages, 0)
        self.updates = dict.fromkeys(self.stages, schedule.first_batch)
        self.around = {stage: _messages(shape, stage) for stage in self.stages}

    def of(self, order: Iterable[Step]) -> list[Action]:
        """All actions of the rank."""
        row: list[Action] = []
        version_of, updates, around = self.schedule.version_of, self.updates, self.around
        for kind, stage, microbatch in order:
            version = version_of(stage, microbatch)
            if kind is Kind.FORWARD and updates[stage] < version:
                row += self._update(stage, version)
            receive, send = around[stage][kind]
            if receive is not None:
                row.append(Action(stage, receive, microbatch))
            row.append(Action(stage, kind, microbatch, version))
            if send is not None:
                row.append(Action(stage, send, microbatch))
            if kind.ends_backward:
                row += self._end_backward(stage)
        for stage in self.stages:
            row += self._update(stage, self.schedule.batch_numbers.stop)
        return row

    def _update(self, stage: int, version: int) -> Iterator[Action]:
        """The updates that make a version which does not exist yet."""
        for batch in range(self.updates[stage], version):
            yield Action(stage, Kind.UPDATE, batch)
        self.updates[stage] = max(self.updates[stage], version)

    def _end_backward(self, stage: int) -> Sequence[Action]:
        """What follows a backward: after the last of a batch its gradients are handed over."""
        self.backwards[stage] += 1
        batches, rest = divmod(self.backwards[stage], self.each)
        if rest:
            return ()
        batch = self.schedule.first_batch + batches - 1
        handed_over = [Action(stage, Kind.REDUCE, batch)]
        if self.schedule.updates_stage_by_stage:
            handed_over += self._update(stage, batch + 1)
        return handed_over


def _messages(shape: PipelineShape, stage: int) -> dict[Kind, tuple[Kind | None, Kind | None]]:
    """For each computation of a stage the receive before it and the send after it, if any."""
    is_fed = stage > 0 and shape.is_handed_over(stage - 1)
    feeds = shape.is_handed_over(stage)
    forward = (Kind.RECEIVE_FORWARD if is_fed else None, Kind.SEND_FORWARD if feeds else None)
    gradient = (Kind.RECEIVE_BACKWARD if feeds else None, Kind.SEND_BACKWARD if is_fed else None)
    return {
        Kind.FORWARD: forward,
        Kind.BACKWARD: gradient,
        Kind.INPUT_BACKWARD: gradient,
        Kind.WEIGHT_BACKWARD: (None, None),
    }
