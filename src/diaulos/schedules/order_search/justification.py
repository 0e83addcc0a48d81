"""Orders of a batch by priorities, and what justifying them to either end gains.

Justification (Li & Willis 1992; Valls, Ballestín & Quintanilla 2005): from the last to the first,
each computation is moved as late as the others allow, then from the first to the last as early;
what lay in the way on the first pass often does not on the second.
"""

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from itertools import count

from diaulos.schedules.order_search.shop import Orders, Shop, Times

_ROUNDING = 1e-9


def by_priority(shop: Shop, priority: Sequence[float]) -> Times:
    """Each rank starts, whenever it is free, what is there and has the least priority value."""
    total = len(shop.steps)
    start, end, ready = [0.0] * total, [0.0] * total, [0.0] * total
    missing = [len(arcs) for arcs in shop.before]
    there: list[list[tuple[float, int]]] = [[] for _ in range(shop.ranks)]
    is_free = [True] * shop.ranks
    tie = count()
    events = [(0.0, next(tie), one, False) for one in range(total) if not missing[one]]
    while events:
        now, touched = events[0][0], set()
        while events and events[0][0] <= now + _ROUNDING:
            _, _, one, is_end = heapq.heappop(events)
            rank = shop.rank[one]
            touched.add(rank)
            if is_end:
                is_free[rank] = True
            else:
                heapq.heappush(there[rank], (priority[one], one))
        for rank in sorted(touched):
            if is_free[rank] and there[rank]:
                _, one = heapq.heappop(there[rank])
                is_free[rank] = False
                start[one], end[one] = now, now + shop.seconds[one]
                heapq.heappush(events, (end[one], next(tie), one, True))
                for later, hop in shop.behind[one]:
                    ready[later] = max(ready[later], end[one] + hop)
                    missing[later] -= 1
                    if not missing[later]:
                        heapq.heappush(events, (ready[later], next(tie), later, False))
    return Times(start=start, end=end)


def justified(shop: Shop, times: Times) -> tuple[Times, Orders]:
    """The times after moving all to the late end and back, as long as that gains something."""
    mirrored = shop.mirrored
    best = inserted(shop, times.start)  # nothing starts later than it did
    while True:
        late, _ = inserted(mirrored, [-end for end in times.end])
        whole = late.seconds
        found = inserted(shop, [whole - end for end in late.end])
        if found[0].seconds >= best[0].seconds - _ROUNDING:
            return best
        best, times = found, found[0]


def inserted(shop: Shop, priority: Sequence[float]) -> tuple[Times, Orders]:
    """In the order of their priority values, each goes into the first gap of its rank that it fits.

    What others wait for goes before them, whatever its value.
    """
    total = len(shop.steps)
    start, end = [0.0] * total, [0.0] * total
    taken: list[list[tuple[float, float]]] = [[] for _ in range(shop.ranks)]
    orders: Orders = [[] for _ in range(shop.ranks)]
    missing = [len(arcs) for arcs in shop.before]
    there = [(priority[one], one) for one in range(total) if not missing[one]]
    heapq.heapify(there)
    while there:
        _, one = heapq.heappop(there)
        rank, seconds = shop.rank[one], shop.seconds[one]
        now = max((end[first] + hop for first, hop in shop.before[one]), default=0.0)
        spans = taken[rank]
        place = bisect_right(spans, now, key=lambda span: span[1])  # the first that ends later
        while place < len(spans) and spans[place][0] < now + seconds - _ROUNDING:
            now = max(now, spans[place][1])
            place += 1
        start[one], end[one] = now, now + seconds
        spans.insert(place, (now, now + seconds))
        orders[rank].insert(place, one)
        for later, _ in shop.behind[one]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(there, (priority[later], later))
    return Times(start=start, end=end), orders
