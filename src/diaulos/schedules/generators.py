"""The schedules: each a small pure function from a pipeline's shape to action lists.

A generator gives only the order of forwards and backwards on each rank. What follows from it is
added by one code for all of them: the reduction after a batch's last backward, the update before
the first forward that needs it, and the sends and receives around each computation.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import PipelineShape, Schedule


def gpipe(shape: PipelineShape, batches: range) -> Schedule:
    """GPipe (Huang et al. 2019): all forwards of a batch, then all its backwards."""
    local = tuple(shape.microbatches // degree for degree in shape.replicas)
    return _flushed("gpipe", shape, batches, warm_up=local, limits=local)


def one_forward_one_backward(shape: PipelineShape, batches: range) -> Schedule:
    """1F1B with a flush after each batch (PipeDream-Flush, Narayanan et al. 2021).

    Stage r warms up with d-1-r forwards, alternates, and drains: at most d-r in flight.
    """
    local = (shape.microbatches // degree for degree in shape.replicas)
    limits = tuple(map(min, shape.in_flight, local))
    warm_up = tuple(in_flight - 1 for in_flight in shape.in_flight)
    return _flushed("1f1b", shape, batches, warm_up=warm_up, limits=limits)


def two_buffered_weights(shape: PipelineShape, batches: range) -> Schedule:
    """2BW (Narayanan et al. 2021): 1F1B that never flushes, with a gradient delay of one batch.

    Batch t computes with version max(t-1, 0). A rank updates as late as it can, right before its
    first forward of batch t+2, so that the reductions of batch t have time to finish.
    """
    _check_enough_microbatches(shape)
    orders = []
    for rank in range(shape.ranks):
        per_batch = (shape.microbatches_of(rank, batch) for batch in batches)
        warm_up = shape.in_flight[shape.stage_of(rank)] - 1
        orders.append(_alternate(list(itertools.chain(*per_batch)), warm_up))
    in_all = (len(batches) * shape.microbatches // degree for degree in shape.replicas)
    limits = tuple(map(min, shape.in_flight, in_all))
    return _schedule("2bw", shape, batches, gradient_delay=1, limits=limits, orders=orders)


GENERATORS: Mapping[str, Callable[[PipelineShape, range], Schedule]] = MappingProxyType(
    {"gpipe": gpipe, "1f1b": one_forward_one_backward, "2bw": two_buffered_weights}
)
"""The schedules by the names that files and flags use."""


def generate(name: str, shape: PipelineShape, batches: int, first_batch: int = 0) -> Schedule:
    """The schedule of this name for a pipeline of this shape."""
    if name not in GENERATORS:
        raise InputError(f"there is no schedule {name!r}", f"there are {', '.join(GENERATORS)}")
    if batches < 1:
        raise InputError(f"batches is {batches}", "it must be at least 1")
    return GENERATORS[name](shape, range(first_batch, first_batch + batches))


def _check_enough_microbatches(shape: PipelineShape) -> None:
    for stage, (in_flight, degree) in enumerate(zip(shape.in_flight, shape.replicas, strict=True)):
        local = shape.microbatches // degree
        if local < in_flight - 1:
            raise InputError(
                f"microbatches is {shape.microbatches}: each replica of stage {stage} runs {local} "
                f"of them and needs at least {in_flight - 1}",
                "2BW needs depth - 1 microbatches per replica, or the pipeline would need a weight "
                "version that does not exist yet",
                f"use at least {_fewest_microbatches(shape, 0)}, or "
                f"{_fewest_microbatches(shape, 1)} to leave time for the reductions",
            )


def _fewest_microbatches(shape: PipelineShape, spare: int) -> int:
    """The fewest of a batch that give each replica what 2BW needs and `spare` more."""
    common = math.lcm(*shape.replicas)
    needed = max(
        (in_flight - 1 + spare) * degree
        for in_flight, degree in zip(shape.in_flight, shape.replicas, strict=True)
    )
    return max(-(-needed // common), 1) * common


def _alternate(stream: Sequence[int], warm_up: int) -> Iterator[tuple[Kind, int]]:
    """Warm up with forwards, alternate one forward and one backward, drain the backwards."""
    warm_up = min(warm_up, len(stream))
    for microbatch in stream[:warm_up]:
        yield Kind.FORWARD, microbatch
    for forward, backward in zip(stream[warm_up:], stream, strict=False):
        yield Kind.FORWARD, forward
        yield Kind.BACKWARD, backward
    for microbatch in stream[len(stream) - warm_up :]:
        yield Kind.BACKWARD, microbatch


def _flushed(
    name: str,
    shape: PipelineShape,
    batches: range,
    *,
    warm_up: Sequence[int],
    limits: tuple[int, ...],
) -> Schedule:
    """A schedule that drains each batch before the next; `warm_up` is by stage."""
    orders = []
    for rank in range(shape.ranks):
        drained = (
            list(_alternate(shape.microbatches_of(rank, batch), warm_up[shape.stage_of(rank)]))
            for batch in batches
        )
        orders.append(list(itertools.chain(*drained)))
    return _schedule(name, shape, batches, gradient_delay=0, limits=limits, orders=orders)


def _schedule(
    name: str,
    shape: PipelineShape,
    batches: range,
    *,
    gradient_delay: int,
    limits: tuple[int, ...],
    orders: Iterable[Iterable[tuple[Kind, int]]],
) -> Schedule:
    """The schedule whose ranks compute in these orders, with all that follows from them."""
    empty = Schedule(
        name=name,
        shape=shape,
        first_batch=batches.start,
        batches=len(batches),
        gradient_delay=gradient_delay,
        in_flight_limits=limits,
        actions=(),
    )
    rows = (tuple(_complete(empty, rank, order)) for rank, order in enumerate(orders))
    return replace(empty, actions=tuple(rows))


def _complete(schedule: Schedule, rank: int, order: Iterable[tuple[Kind, int]]) -> Iterator[Action]:
    """A rank's computations with the reductions, updates, sends and receives that they need."""
    shape, delay = schedule.shape, schedule.gradient_delay
    stage = shape.stage_of(rank)
    next_update = schedule.first_batch
    for kind, microbatch in order:
        batch = microbatch // shape.microbatches
        while kind is Kind.FORWARD and next_update < batch - delay:
            yield Action(stage, Kind.UPDATE, next_update)
            next_update += 1
        action = Action(stage, kind, microbatch, schedule.version_of(microbatch))
        yield from _with_neighbours(action, shape.stages)
        if kind is Kind.BACKWARD and microbatch == shape.microbatches_of(rank, batch)[-1]:
            yield Action(stage, Kind.REDUCE, batch)
    for batch in range(next_update, schedule.first_batch + schedule.batches):
        yield Action(stage, Kind.UPDATE, batch)


def _with_neighbours(action: Action, stages: int) -> Iterator[Action]:
    """A computation between the receive that feeds it and the send of what it gives."""
    stage, microbatch = action.stage, action.number
    is_first, is_last = stage == 0, stage == stages - 1
    if action.kind is Kind.FORWARD:
        if not is_first:
            yield Action(stage, Kind.RECEIVE_FORWARD, microbatch)
        yield action
        if not is_last:
            yield Action(stage, Kind.SEND_FORWARD, microbatch)
    else:
        if not is_last:
            yield Action(stage, Kind.RECEIVE_BACKWARD, microbatch)
        yield action
        if not is_first:
            yield Action(stage, Kind.SEND_BACKWARD, microbatch)
