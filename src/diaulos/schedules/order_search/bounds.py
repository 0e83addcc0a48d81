"""What no order of a batch can be better than."""

from itertools import accumulate

from diaulos.schedules.order_search.list_scheduling import Chain


def lower_bound_seconds(chain: Chain, *, most_chunks: int) -> float:
    """What no flushed schedule can do a batch in, the optimizer and reductions not counted.

    `most_chunks` is into how many stages a rank's work may be cut, 1 where it stays whole.
    """
    return _bound_of_parts(chain, most_chunks) if most_chunks > 1 else _bound_of_wholes(chain)


def _bound_of_parts(chain: Chain, chunks: int) -> float:
    """A rank does all its work after the first parts of the stages before it."""
    before, bounds = 0.0, []
    for position, cost in enumerate(chain.costs):
        bounds.append(before + _work(chain, position))
        before += cost.forward_seconds / chunks
    return max(bounds)


def _bound_of_wholes(chain: Chain) -> float:
    """The largest of two sums over the stages.

    First: until the stage's first forward can start; its work; how long it is idle before the first
    gradient can be back, since only so many forwards are allowed before it; and how long the
    gradient of the last microbatch takes to the first stage, less the weight halves that fit in.
    Second: until its first forward can start, and the round trips of a microbatch that follow one
    another where only so many can be in flight.
    """
    depth, bounds = len(chain.costs), []
    hops = [chain.hop_seconds(border) for border in range(depth - 1)]
    forward = [cost.forward_seconds for cost in chain.costs]
    inputs = [cost.input_seconds for cost in chain.costs]
    ahead = list(accumulate(map(sum, zip(forward, hops, strict=False)), initial=0.0))
    down = list(accumulate(map(sum, zip(inputs, hops, strict=False)), initial=0.0))
    turned = ahead[-1] + forward[-1]
    for stage, cost in enumerate(chain.costs):
        held = min(chain.limits[stage], chain.microbatches)
        behind = down[-1] + inputs[-1] - down[stage] - inputs[stage]
        back = turned - ahead[stage] + behind
        idle = max(back - held * forward[stage], 0.0)
        last = down[stage] + (chain.costs[0].weight_seconds if stage else 0.0)
        tail = max(last - held * cost.weight_seconds, 0.0)
        bounds.append(ahead[stage] + idle + _work(chain, stage) + tail)
        trips, rest = divmod(chain.microbatches - 1, held)
        trip = back + cost.backward_seconds
        bounds.append(ahead[stage] + rest * forward[stage] + (trips + 1) * trip)
    return max(bounds)


def _work(chain: Chain, position: int) -> float:
    cost = chain.costs[position]
    return chain.microbatches * (cost.forward_seconds + cost.backward_seconds)
