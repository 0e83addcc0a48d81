"""GPipe and 1F1B: one stage a rank, and a flush after each batch."""

from collections.abc import Iterator

from diaulos.schedules.actions import Kind
from diaulos.schedules.completion import Order, Step, flushed
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape


def gpipe(shape: PipelineShape, batches: range) -> Schedule:
    """GPipe (Huang et al. 2019): all forwards of a batch, then all its backwards."""
    local = [shape.microbatches // degree for degree in shape.replicas]

    def order_of(position: int) -> Order:
        return list(alternating(position, local[position], local[position]))

    return flushed("gpipe", shape, batches, order_of=order_of, limits=local)


def one_forward_one_backward(shape: PipelineShape, batches: range) -> Schedule:
    """1F1B with a flush after each batch (PipeDream-Flush, Narayanan et al. 2021).

    Stage r warms up with d-1-r forwards, alternates, and drains: at most d-r in flight.
    """
    local = [shape.microbatches // degree for degree in shape.replicas]

    def order_of(position: int) -> Order:
        return list(alternating(position, local[position], shape.in_flight[position] - 1))

    limits = [min(pair) for pair in zip(shape.in_flight, local, strict=True)]
    return flushed("1f1b", shape, batches, order_of=order_of, limits=limits)


def alternating(stage: int, microbatches: int, warm_up: int) -> Iterator[Step]:
    """Warm up with forwards, alternate one forward and one backward, drain the backwards."""
    warm_up = min(warm_up, microbatches)
    for index in range(warm_up):
        yield Kind.FORWARD, stage, index
    for index in range(microbatches - warm_up):
        yield Kind.FORWARD, stage, index + warm_up
        yield Kind.BACKWARD, stage, index
    for index in range(microbatches - warm_up, microbatches):
        yield Kind.BACKWARD, stage, index
