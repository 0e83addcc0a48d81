"""GPipe and 1F1B: one stage a rank, and a flush after each batch."""

from diaulos.schedules.generation.alternation import alternating
from diaulos.schedules.generation.completion import Order, completed, flushed, flushed_law
from diaulos.schedules.generation.unequal import unequal_orders
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

    Stage r warms up with d-1-r forwards, alternates, and drains: at most d-r in flight. Where
    stages have unequal degrees, the order is the best one found within the same limits.
    """
    local = [shape.microbatches // degree for degree in shape.replicas]
    limits = [min(pair) for pair in zip(shape.in_flight, local, strict=True)]
    if len(set(shape.replicas)) > 1:
        law = flushed_law("1f1b", shape, batches, limits)
        return completed(law, unequal_orders(law, batches_open=1))

    def order_of(position: int) -> Order:
        return list(alternating(position, local[position], shape.in_flight[position] - 1))

    return flushed("1f1b", shape, batches, order_of=order_of, limits=limits)
