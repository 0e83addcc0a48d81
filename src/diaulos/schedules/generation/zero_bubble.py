"""Zero-bubble schedules (Qi et al. 2024), one stage a rank: backwards split into two halves.

The half that gives the gradient of the weights waits until the rank would be idle.
"""

from diaulos.schedules.actions import Kind
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import Order, completed, flushed, flushed_law
from diaulos.schedules.generation.looped import equal_share
from diaulos.schedules.generation.unequal import unequal_halved_orders
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape


def zero_bubble_h1(shape: PipelineShape, batches: range) -> Schedule:
    """ZB-H1: no more memory than 1F1B needs on its first stage.

    Stage r warms up as under 1F1B and lets r weight halves wait: at most d in flight. Where stages
    have unequal degrees, at most ceil(s / degree) are, s being the sum of all degrees, and the
    order is the best one found.
    """
    if len(set(shape.replicas)) > 1:
        limits = [
            min(-(-shape.ranks // degree), shape.microbatches // degree)
            for degree in shape.replicas
        ]
        law = flushed_law("zb-h1", shape, batches, limits)
        return completed(law, unequal_halved_orders(law))
    return _zero_bubble("zb-h1", shape, batches, slots_ahead=1)


def zero_bubble_h2(shape: PipelineShape, batches: range) -> Schedule:
    """ZB-H2: warms up twice as far, so that no rank is idle after its first forward.

    Stage r lets 2 r weight halves wait: at most 2 d - 1 in flight.
    """
    return _zero_bubble("zb-h2", shape, batches, slots_ahead=2)


def _zero_bubble(name: str, shape: PipelineShape, batches: range, *, slots_ahead: int) -> Schedule:
    local = equal_share(shape)
    last = shape.depth - 1

    def order_of(position: int) -> Order:
        warm_up, waiting = slots_ahead * (last - position), slots_ahead * position
        return delayed_weights(position, local, warm_up, waiting)

    limits = [min(slots_ahead * last + 1, local)] * shape.depth
    return flushed(name, shape, batches, order_of=order_of, limits=limits)


def delayed_weights(stage: int, microbatches: int, warm_up: int, waiting: int) -> list[Step]:
    """Forwards, input halves in turn with them, and weight halves once `waiting` of them wait.

    When the forwards have ended, a weight half follows each input half.
    """
    warm_up = min(warm_up, microbatches)
    order = [(Kind.FORWARD, stage, index) for index in range(warm_up)]
    weights = 0
    for index in range(microbatches):
        if index + warm_up < microbatches:
            order.append((Kind.FORWARD, stage, index + warm_up))
        order.append((Kind.INPUT_BACKWARD, stage, index))
        if index + warm_up >= microbatches or index - weights >= waiting:
            order.append((Kind.WEIGHT_BACKWARD, stage, weights))
            weights += 1
    return order + [(Kind.WEIGHT_BACKWARD, stage, i) for i in range(weights, microbatches)]
