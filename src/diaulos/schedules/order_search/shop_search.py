"""Good orders of a batch: many by priorities, justified, and the best of them improved."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.order_search.exchanges import exchanged
from diaulos.schedules.order_search.extension import extended
from diaulos.schedules.order_search.justification import by_priority, inserted, justified
from diaulos.schedules.order_search.list_scheduling import Chain
from diaulos.schedules.order_search.shop import Orders, Shop, Times, shop_of, times_of

_COMPUTATIONS_PLACED = 25_000
"""In all orders by priorities together; of a batch of more computations none are tried."""
_COMPUTATIONS_EXCHANGED = 200_000
"""In all steps of the tabu search together."""
_COMPUTATIONS_EXTENDED = 40_000
"""In all orders together that repeat a part of others."""
_PARTS = (2, 3, 4)
"""How many of the repeated parts are in the order that they are taken from."""
_MOST_SAMPLES, _MOST_STEPS = 200, 1_000
"""More gain nothing, however small the batch is."""
_NOISES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Of priorities, in mean computations."""
_SEED = 0


def found_orders(chain: Chain, *, enough_seconds: float) -> list[list[Step]] | None:
    """The best orders found for a batch, by stage; None where the batch is too large.

    The search ends with orders that take no more than `enough_seconds`.
    """
    shop = shop_of(chain)
    if len(shop.steps) > _COMPUTATIONS_PLACED:
        return None
    seconds, orders = _searched(shop, enough_seconds)
    for other_seconds, other in _extensions(chain, shop):
        if seconds <= enough_seconds:
            break
        if other_seconds < seconds:
            seconds, orders = other_seconds, other
    return [[shop.steps[one] for one in order] for order in orders]


def _searched(shop: Shop, enough_seconds: float) -> tuple[float, Orders]:
    draw = Random(_SEED)  # noqa: S311 - nothing secret
    samples = min(_COMPUTATIONS_PLACED // len(shop.steps), _MOST_SAMPLES)
    best: tuple[float, Orders] | None = None
    for found in _justified_samples(shop, samples, draw):
        if best is None or found[0] < best[0]:
            best = found
        if best[0] <= enough_seconds:
            break
    assert best is not None, "there was a sample"
    steps = min(_COMPUTATIONS_EXCHANGED // len(shop.steps), _MOST_STEPS)
    return exchanged(shop, best[1], steps=steps, enough_seconds=enough_seconds, draw=draw)


def _extensions(chain: Chain, shop: Shop) -> Iterator[tuple[float, Orders]]:
    """Orders that repeat a part of those of fewer microbatches, as many as may be in flight."""
    part, left = max(chain.limits), _COMPUTATIONS_EXTENDED // len(shop.steps)
    for parts in _PARTS:
        count = parts * part + chain.microbatches % part
        if count >= chain.microbatches or not left:
            return
        few = shop_of(replace(chain, microbatches=count))
        times = times_of(few, _searched(few, 0.0)[1])
        assert times is not None, "they were found possible"
        for behind in range(count - part, part - 1, -1):
            if not left:
                return
            left -= 1
            priorities = extended(few, times, shop, part=part, behind=behind)
            found, orders = justified(shop, inserted(shop, priorities)[0])
            yield found.seconds, orders


def _justified_samples(shop: Shop, samples: int, draw: Random) -> Iterator[tuple[float, Orders]]:
    """Orders by priorities between the longest way to the end and that from the start.

    Every second one is made from the end to the start.
    """
    mirrored = shop.mirrored
    ahead, behind = _longest_ways(mirrored), _longest_ways(shop)
    mean = sum(shop.seconds) / len(shop.seconds)
    for sample in range(samples):
        noise = draw.choice(_NOISES) * mean if sample else 0.0
        part = draw.random() if sample else 0.0
        if sample % 2 == 0:
            times = by_priority(shop, _priorities(ahead, behind, part, noise, draw))
        else:
            late = by_priority(mirrored, _priorities(behind, ahead, part, noise, draw))
            whole = late.seconds
            times = Times(
                start=[whole - end for end in late.end], end=[whole - start for start in late.start]
            )
        times, orders = justified(shop, times)
        yield times.seconds, orders


def _priorities(
    ahead: Sequence[float], behind: Sequence[float], part: float, noise: float, draw: Random
) -> list[float]:
    return [
        part * before - (1 - part) * after + noise * draw.random()
        for before, after in zip(ahead, behind, strict=True)
    ]


def _longest_ways(shop: Shop) -> list[float]:
    """From the start of each computation to the end of all, with no waiting for ranks."""
    times, _ = inserted(
        Shop(
            steps=shop.steps,
            seconds=shop.seconds,
            rank=range(len(shop.steps)),
            before=shop.behind,
            behind=shop.before,
            ranks=len(shop.steps),
        ),
        [0.0] * len(shop.steps),
    )
    return times.end
