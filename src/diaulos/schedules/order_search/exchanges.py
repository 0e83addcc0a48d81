"""Better orders of a batch by exchanging neighbours: a tabu search.

Only two computations of a rank that follow one another on the critical path are worth exchanging
(van Laarhoven, Aarts & Lenstra 1992); the best of some such exchanges is made, also where it loses
something, and not undone for a while (Taillard 1994).
"""

from collections.abc import Iterator
from random import Random

from diaulos.schedules.order_search.shop import Orders, Shop, Times, times_of

_ROUNDING = 1e-9
_MOST_LOOKED_AT = 6
"""Exchanges of a step."""
_SHORTEST_BAN, _BANS = 8, 8
"""For how many steps at least an exchange is not undone, and how many lengths there are."""


def exchanged(
    shop: Shop, orders: Orders, *, steps: int, enough_seconds: float, draw: Random
) -> tuple[float, Orders]:
    """The seconds and orders of the best that so many steps meet, from possible orders on.

    It ends with orders that take no more than `enough_seconds`.
    """
    orders = [list(order) for order in orders]
    times = times_of(shop, orders)
    assert times is not None, "the orders are possible"
    best = times.seconds, [list(order) for order in orders]
    banned: dict[tuple[int, int], int] = {}
    for step in range(steps):
        pairs = [*_critical_pairs(shop, times, orders)]
        if best[0] <= enough_seconds or not pairs:
            break
        pairs = draw.sample(pairs, min(len(pairs), _MOST_LOOKED_AT))
        found: tuple[Times, int, int] | None = None
        for rank, place in pairs:
            pair = orders[rank][place + 1], orders[rank][place]
            tried = _tried(shop, orders, rank, place)
            if tried is None or (found is not None and tried.seconds >= found[0].seconds):
                continue
            if banned.get(pair, step) <= step or tried.seconds < best[0] - _ROUNDING:
                found = tried, rank, place
        if found is None:
            continue
        times, rank, place = found
        undone = orders[rank][place], orders[rank][place + 1]
        banned[undone] = step + _SHORTEST_BAN + draw.randrange(_BANS)
        _exchange(orders[rank], place)
        if times.seconds < best[0] - _ROUNDING:
            best = times.seconds, [list(order) for order in orders]
    return best


def _tried(shop: Shop, orders: Orders, rank: int, place: int) -> Times | None:
    """The times after an exchange, which is undone; None where ranks would wait in a circle."""
    _exchange(orders[rank], place)
    tried = times_of(shop, orders)
    _exchange(orders[rank], place)
    return tried


def _exchange(order: list[int], place: int) -> None:
    order[place], order[place + 1] = order[place + 1], order[place]


def _critical_pairs(shop: Shop, times: Times, orders: Orders) -> Iterator[tuple[int, int]]:
    """Ranks and places of neighbours on a critical path of which neither waits for the other."""
    start, end = times.start, times.end
    place_of = [0] * len(shop.steps)
    for order in orders:
        for place, one in enumerate(order):
            place_of[one] = place
    one = max(range(len(end)), key=end.__getitem__)
    while start[one] > _ROUNDING:
        rank, place = shop.rank[one], place_of[one]
        first = orders[rank][place - 1] if place else None
        waited = [a for a, hop in shop.before[one] if end[a] + hop > start[one] - _ROUNDING]
        if first is not None and end[first] > start[one] - _ROUNDING:
            if all(before != first for before, _ in shop.before[one]):
                yield rank, place - 1
            one = first
        else:
            one = waited[0]
