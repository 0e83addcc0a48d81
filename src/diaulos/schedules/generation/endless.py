"""Schedules that never flush: 2BW, and PipeDream with its stashed weights."""

import math
from collections.abc import Iterator
from dataclasses import replace

from diaulos.errors import InputError
from diaulos.schedules.generation.alternation import alternating
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import completed
from diaulos.schedules.generation.looped import equal_share
from diaulos.schedules.generation.unequal import unequal_orders
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape


def two_buffered_weights(shape: PipelineShape, batches: range) -> Schedule:
    """2BW (Narayanan et al. 2021): 1F1B that never flushes, with a gradient delay of one batch.

    Batch t computes with version max(t-1, 0). A rank updates as late as it can, right before its
    first forward of batch t+2, so that the reductions of batch t have time to finish. Where stages
    have unequal degrees, the order is the best one found within the same limits.
    """
    _check_enough_microbatches(shape)
    return _never_flushed("2bw", shape, batches, gradient_delays=(1,) * shape.stages)


def pipedream(shape: PipelineShape, batches: range) -> Schedule:
    """PipeDream (Narayanan et al., SOSP 2019): 1F1B with an update after every backward.

    A batch is then one microbatch on each replica, so that m batches take the place of one. The
    weights of a forward are stashed for its backward: stage r computes batch t with version
    t - (d-1-r) and keeps d - r versions. Stages update on their own.
    """
    late = range(shape.stages - 1, -1, -1)
    return _update_each("pipedream", shape, batches, gradient_delays=tuple(late))


def pipedream_vertical_sync(shape: PipelineShape, batches: range) -> Schedule:
    """PipeDream with vertical sync: all stages compute batch t with version t - (d-1).

    That is the version which the first stage has newest at its forward; each stage keeps d.
    """
    delays = (shape.stages - 1,) * shape.stages
    return _update_each("pipedream-vertical", shape, batches, gradient_delays=delays)


def update_slack(shape: PipelineShape) -> tuple[int, ...]:
    """Under 2BW, how many pairs of forward and backward each rank has for the reductions.

    m - (d-1-r) between the last backward of a batch and the first forward that needs its update.
    """
    pairs = zip(shape.in_flight, shape.replicas, strict=True)
    return tuple(shape.microbatches // degree - (in_flight - 1) for in_flight, degree in pairs)


def _update_each(
    name: str, shape: PipelineShape, batches: range, gradient_delays: tuple[int, ...]
) -> Schedule:
    local = equal_share(shape)
    one_each = replace(shape, microbatches=shape.replicas[0])
    small = range(batches.start * local, batches.stop * local)
    return _never_flushed(name, one_each, small, gradient_delays=gradient_delays, alone=True)


def _never_flushed(
    name: str,
    shape: PipelineShape,
    batches: range,
    *,
    gradient_delays: tuple[int, ...],
    alone: bool = False,
) -> Schedule:
    in_all = [len(batches) * shape.microbatches // degree for degree in shape.replicas]
    empty = Schedule(
        name=name,
        shape=shape,
        first_batch=batches.start,
        batches=len(batches),
        gradient_delays=gradient_delays,
        updates_stage_by_stage=alone,
        in_flight_limits=tuple(map(min, shape.in_flight, in_all)),
        actions=(),
    )
    if len(set(shape.replicas)) > 1:
        return completed(empty, unequal_orders(empty, batches_open=2))
    return completed(empty, (_endless_order(empty, rank) for rank in range(shape.ranks)))


def _endless_order(schedule: Schedule, rank: int) -> Iterator[Step]:
    """1F1B over all microbatches of the rank."""
    shape = schedule.shape
    stage = shape.stage_of(rank)
    stream = [
        number for batch in schedule.batch_numbers for number in shape.microbatches_of(rank, batch)
    ]
    warm_up = shape.in_flight[stage] - 1
    for kind, _, index in alternating(stage, len(stream), warm_up):
        yield kind, stage, stream[index]


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
