"""Good orders of a batch: many by priorities, justified, and the best of them improved."""

from collections.abc import Iterator, Sequence
from random import Random

from diaulos.schedules.assembly import Step
from diaulos.schedules.exchanges import exchanged
from diaulos.schedules.justification import by_priority, inserted, justified
from diaulos.schedules.list_scheduling import Chain
from diaulos.schedules.shop import Orders, Shop, Times, shop_of

_COMPUTATIONS_PLACED = 25_000
"""In all orders by priorities together; of a batch of more computations none are tried."""
_COMPUTATIONS_EXCHANGED = 200_000
"""In all steps of the tabu search together."""
_MOST_SAMPLES, _MOST_STEPS = 200, 1_000
"""More gain nothing, however small the batch is."""
_NOISES = (1.0, 2.0, 5.0, 10.0, 20.0)
"""Of priorities, in mean computations."""
_SEED = 0


def found_orders(chain: Chain, *, enough_seconds: float) -> list[list[Step]] | None:
    """The best orders found for a batch, by stage; None where the batch is too large.

    The search ends with orders that take no more than `enough_seconds`.
    """
    shop, draw = shop_of(chain), Random(_SEED)  # noqa: S311 - nothing secret
    samples = min(_COMPUTATIONS_PLACED // len(shop.steps), _MOST_SAMPLES)
    if not samples:
        return None
    best: tuple[float, Orders] | None = None
    for found in _justified_samples(shop, samples, draw):
        if best is None or found[0] < best[0]:
            best = found
        if best[0] <= enough_seconds:
            break
    assert best is not None, "there was a sample"
    steps = min(_COMPUTATIONS_EXCHANGED // len(shop.steps), _MOST_STEPS)
    orders = exchanged(shop, best[1], steps=steps, enough_seconds=enough_seconds, draw=draw)
    return [[shop.steps[one] for one in order] for order in orders]


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
