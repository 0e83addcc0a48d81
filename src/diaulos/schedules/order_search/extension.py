"""Orders of many microbatches from good ones of a few: a part in the middle is repeated.

Where few microbatches may be in flight, ranks repeat after about as many what they did before.
"""

from statistics import median

from diaulos.schedules.order_search.shop import Shop, Times


def extended(few: Shop, times: Times, many: Shop, *, part: int, behind: int) -> list[float]:
    """Priorities for many microbatches: when each computation would start.

    The `part` microbatches right before number `behind` are repeated as often as there are more of
    them, which must be a multiple of `part`; those from `behind` on come last.
    """
    start = dict(zip(few.steps, times.start, strict=True))
    more = _microbatches(many) - _microbatches(few)
    seconds = median(
        moment - start[kind, stage, number - part]
        for (kind, stage, number), moment in start.items()
        if number == behind
    )
    priorities = []
    for kind, stage, number in many.steps:
        repeats = min(max(-(-(number - behind + 1) // part), 0), more // part)
        priorities.append(start[kind, stage, number - repeats * part] + repeats * seconds)
    return priorities


def _microbatches(shop: Shop) -> int:
    return 1 + max(number for _, _, number in shop.steps)
