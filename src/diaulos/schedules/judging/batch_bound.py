"""What a flushed batch takes at least on stages of any data-parallel degrees, whatever the order.

It costs a small part of a simulation, and most plans that are looked at can be left out by it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from diaulos.schedules.costs import Link, StageCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastCosts:
    """What one replica of a stage takes at least, whichever of some costs are its own."""

    forward_seconds: float
    backward_seconds: float
    input_seconds: float
    """Until the gradient of the input is there."""
    waiting_seconds: float
    """What of a backward can wait, at most."""
    reduce_seconds: float
    update_seconds: float
    output_bytes: float
    input_sync_bytes: float

    @staticmethod
    def of(costs: Sequence[StageCosts], *, is_halved: bool) -> "LeastCosts":
        """The least of each; with `is_halved` weight halves of backwards may wait."""

        def input_seconds(cost: StageCosts) -> float:
            return cost.input_seconds if is_halved else cost.backward_seconds

        return LeastCosts(
            forward_seconds=min(cost.forward_seconds for cost in costs),
            backward_seconds=min(cost.backward_seconds for cost in costs),
            input_seconds=min(map(input_seconds, costs)),
            waiting_seconds=max(cost.weight_seconds for cost in costs) if is_halved else 0.0,
            reduce_seconds=min(cost.reduce_seconds for cost in costs),
            update_seconds=min(cost.update_seconds for cost in costs),
            output_bytes=min(cost.output_bytes for cost in costs),
            input_sync_bytes=min(cost.input_sync_bytes for cost in costs),
        )


def least_batch_seconds(
    stages: Sequence[LeastCosts],
    links: Sequence[Link],
    *,
    local_microbatches: Iterable[int],
    in_flight: Iterable[int],
) -> float:
    """No order of a flushed batch ends before, with the optimizer's update.

    `local_microbatches` are those of a replica of each stage, and `in_flight` how many of them it
    may hold; all go from the input end. A stage cannot start before the first microbatch reaches
    it, nor go backward before it has come back, and then the last one still goes to the first
    stage; and of the microbatches in flight, each makes room for the next by coming back.
    """
    hops = [
        link.latency_seconds + link.seconds(stage.output_bytes + after.input_sync_bytes)
        for link, (stage, after) in zip(links, pairwise(stages), strict=True)
    ]
    starts = [0.0]
    for stage, hop in zip(stages, hops, strict=False):
        starts.append(starts[-1] + stage.forward_seconds + hop)
    # Behind the last stage nothing is waited for.
    back, gradients, end = 0.0, 0.0, 0.0
    rows = [*zip(stages, starts, (*hops, 0.0), local_microbatches, in_flight, strict=True)]
    for stage, start, hop, count, in_flight_limit in reversed(rows):
        held = min(in_flight_limit, count)
        away = back + 2 * hop
        idle = max(away - (held - 1) * stage.forward_seconds, 0.0)
        all_done = start + idle + count * (stage.forward_seconds + stage.backward_seconds)
        trips, rest = divmod(count - 1, held)
        trip = stage.forward_seconds + away + stage.backward_seconds
        all_done = max(all_done, start + rest * stage.forward_seconds + (trips + 1) * trip)
        gradients = max(
            all_done - held * stage.waiting_seconds, gradients + hop + stage.input_seconds
        )
        end = max(end, all_done + stage.reduce_seconds, gradients + stage.reduce_seconds)
        back = stage.forward_seconds + away + stage.input_seconds
    return end + max(stage.update_seconds for stage in stages)
