"""From the order of a rank's computations to all its actions.

A generator gives only the order of forwards and backwards. What follows from it is added here, by
one code for all of them: the sends and receives around each computation, the reduction after a
stage's last backward of a batch, and the update before the first forward that needs it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from diaulos.schedules.columnar.rows import Rows
from diaulos.schedules.generation.assembly import Step, Steps, assembled
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape

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
    steps = [Steps.of(order_of(position)) for position in range(shape.depth)]
    ranks = range(shape.ranks)
    rows = [_batch_by_batch(shape, rank, steps[shape.position_of(rank)], batches) for rank in ranks]
    return _with_actions(flushed_law(name, shape, batches, limits), rows)


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


def _batch_by_batch(shape: PipelineShape, rank: int, steps: Steps, batches: range) -> Steps:
    """Steps of one batch, repeated, their microbatches counted through all batches and ranks."""
    first = np.array([shape.microbatches_of(rank, batch).start for batch in batches])
    degree = shape.replicas[shape.position_of(rank)]
    return Steps(
        kind=np.tile(steps.kind, len(batches)),
        stage=np.tile(steps.stage, len(batches)),
        number=(first[:, None] + degree * steps.number).ravel(),
    )


def completed(empty: Schedule, orders: Iterable[Iterable[Step]]) -> Schedule:
    """The schedule whose ranks compute in these orders, with all that follows from them.

    The microbatches of the orders are counted through all batches and ranks.
    """
    return _with_actions(empty, [Steps.of(order) for order in orders])


def _with_actions(empty: Schedule, rows: Sequence[Steps]) -> Schedule:
    return replace(empty, actions=Rows(assembled(empty, rows)))
