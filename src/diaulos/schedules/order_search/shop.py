"""A batch as a job shop: computations, what each waits for, and when orders let them happen.

Microbatches are alike, so that every stage takes its forwards, its input halves and its weight
halves in the order of the microbatches; a microbatch enters a stage once the one that came so many
before it, as many as may be in flight, has left. What is open is how a rank mixes the three.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from diaulos.schedules.actions import Kind
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.order_search.list_scheduling import Chain

_KINDS = (Kind.FORWARD, Kind.INPUT_BACKWARD, Kind.WEIGHT_BACKWARD)
_FORWARD, _INPUT, _WEIGHT = range(len(_KINDS))
Arcs = tuple[tuple[int, float], ...]
"""Computations, and the seconds of the message between."""
Orders = list[list[int]]
"""The computations of each rank in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Computations are numbers; entry i of each sequence belongs to computation i."""

    steps: Sequence[Step]
    seconds: Sequence[float]
    rank: Sequence[int]
    before: Sequence[Arcs]
    """What it waits for."""
    behind: Sequence[Arcs]
    """What waits for it."""
    ranks: int

    @property
    def mirrored(self) -> "Shop":
        """The same, going back in time."""
        return replace(self, before=self.behind, behind=self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When each computation starts and ends."""

    start: list[float]
    end: list[float]

    @property
    def seconds(self) -> float:
        """Of the batch."""
        return max(self.end)


def shop_of(chain: Chain) -> Shop:
    """The job shop of a batch."""
    local, depth = chain.microbatches, len(chain.costs)
    steps = [
        (kind, stage, index) for stage in range(depth) for kind in _KINDS for index in range(local)
    ]
    before: list[list[tuple[int, float]]] = [[] for _ in steps]
    behind: list[list[tuple[int, float]]] = [[] for _ in steps]

    def number(stage: int, kind: int, index: int) -> int:
        return (stage * len(_KINDS) + kind) * local + index

    def wait(first: int, second: int, hop_seconds: float = 0.0) -> None:
        before[second].append((first, hop_seconds))
        behind[first].append((second, hop_seconds))

    for stage in range(depth):
        for index in range(local):
            forward, gradient, weight = (number(stage, kind, index) for kind in range(len(_KINDS)))
            wait(forward, gradient)
            wait(gradient, weight)
            if index > 0:
                for later in (forward, gradient, weight):
                    wait(later - 1, later)
            if index >= chain.limits[stage]:
                wait(number(stage, _WEIGHT, index - chain.limits[stage]), forward)
            if stage > 0:
                hop = chain.hop_seconds(stage - 1)
                wait(number(stage - 1, _FORWARD, index), forward, hop)
                wait(gradient, number(stage - 1, _INPUT, index), hop)
    return Shop(
        steps=steps,
        seconds=[
            seconds
            for cost in chain.costs
            for each in (cost.forward_seconds, cost.input_seconds, cost.weight_seconds)
            for seconds in [each] * local
        ],
        rank=[stage for _, stage, _ in steps],
        before=[tuple(arcs) for arcs in before],
        behind=[tuple(arcs) for arcs in behind],
        ranks=depth,
    )


def times_of(shop: Shop, orders: Orders) -> Times | None:
    """When everything happens in these orders, at the earliest; None where ranks wait in a circle.

    Messages of one link do not wait for each other here.
    """
    count = len(shop.steps)
    start, end, ready = [0.0] * count, [0.0] * count, [0.0] * count
    missing = [len(arcs) for arcs in shop.before]
    next_place, free = [0] * shop.ranks, [0.0] * shop.ranks
    done, awake = 0, list(range(shop.ranks))
    seconds, rank_of, behind = shop.seconds, shop.rank, shop.behind
    while awake:
        rank = awake.pop()
        order, place, now = orders[rank], next_place[rank], free[rank]
        while place < len(order) and not missing[order[place]]:
            one = order[place]
            if ready[one] > now:  # noqa: PLR1730 - max is a slow call
                now = ready[one]
            start[one] = now
            now += seconds[one]
            end[one] = now
            place += 1
            for later, hop in behind[one]:
                arrival = now + hop
                if arrival > ready[later]:  # noqa: PLR1730 - max is a slow call
                    ready[later] = arrival
                missing[later] -= 1
                if not missing[later] and rank_of[later] != rank:
                    awake.append(rank_of[later])
        done += place - next_place[rank]
        next_place[rank], free[rank] = place, now
    return Times(start=start, end=end) if done == count else None
