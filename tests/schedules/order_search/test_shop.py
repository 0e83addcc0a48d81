"""The job shop of a batch: times, priorities, justification and exchanges."""

from itertools import pairwise
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generation.completion import flushed
from diaulos.schedules.order_search.exchanges import exchanged
from diaulos.schedules.order_search.justification import by_priority, inserted, justified
from diaulos.schedules.order_search.list_scheduling import Chain
from diaulos.schedules.order_search.shop import Orders, Shop, Times, shop_of, times_of
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

ROUNDING = 1e-9


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Uneven stages, also with halves that take no time, and messages that take some."""
    seconds = st.integers(0, 5)
    depth = draw(st.integers(1, 4))
    costs = []
    for _ in range(depth):
        of_input, of_weights = draw(seconds), draw(seconds)
        costs.append(
            StageCosts(
                forward_seconds=1 + draw(seconds),
                backward_seconds=of_input + of_weights,
                weight_backward_seconds=of_weights,
            )
        )
    return Chain(
        costs=costs,
        links=[Link(latency_seconds=draw(st.sampled_from([0.0, 0.5])))] * (depth - 1),
        limits=[draw(st.integers(1, depth + 1)) for _ in range(depth)],
        microbatches=draw(st.integers(1, 6)),
    )


def assert_possible(shop: Shop, times: Times) -> None:
    """Nothing starts before what it waits for, and no rank does two things at a time."""
    for one, arcs in enumerate(shop.before):
        assert abs(times.end[one] - times.start[one] - shop.seconds[one]) < ROUNDING
        for first, hop in arcs:
            assert times.end[first] + hop <= times.start[one] + ROUNDING
    for rank in range(shop.ranks):
        spans = sorted(
            (times.start[one], times.end[one]) for one in range(len(shop.steps))
            if shop.rank[one] == rank and shop.seconds[one] > 0
        )  # fmt: skip
        for (_, before), (after, _) in pairwise(spans):
            assert before <= after + ROUNDING


def drawn_priorities(shop: Shop, draw: Random) -> list[float]:
    return [draw.random() for _ in shop.steps]


def simulated_seconds(chain: Chain, shop: Shop, orders: Orders) -> float:
    """What the simulator says of these orders, which the checker accepts."""
    shape = PipelineShape(replicas=(1,) * len(chain.costs), microbatches=chain.microbatches)
    rows = [[shop.steps[one] for one in order] for order in orders]
    schedule = flushed("any", shape, range(1), order_of=rows.__getitem__, limits=chain.limits)
    simulator = Simulator(schedule, check(schedule))
    timeline = simulator.timeline(chain.costs, chain.links)
    return max(e.end_seconds for e in timeline.events if e.action.kind.is_compute)


@settings(max_examples=60)
@given(chains(), st.integers(0, 1000))
def test_priorities_and_gaps_give_possible_times(chain: Chain, seed: int) -> None:
    """By any priorities everything is done once, in both directions of time."""
    draw = Random(seed)
    for shop in (shop_of(chain), shop_of(chain).mirrored):
        assert_possible(shop, by_priority(shop, drawn_priorities(shop, draw)))
        times, orders = inserted(shop, drawn_priorities(shop, draw))
        assert_possible(shop, times)
        assert sorted(one for order in orders for one in order) == [*range(len(shop.steps))]


@settings(max_examples=60)
@given(chains(), st.integers(0, 1000))
def test_orders_take_what_the_simulator_says(chain: Chain, seed: int) -> None:
    """The checker accepts the orders, and they take as long as the simulator finds."""
    shop = shop_of(chain)
    _, orders = inserted(shop, drawn_priorities(shop, Random(seed)))
    times = times_of(shop, orders)
    assert times is not None
    assert_possible(shop, times)
    assert abs(times.seconds - simulated_seconds(chain, shop, orders)) < ROUNDING


@settings(max_examples=60)
@given(chains(), st.integers(0, 1000))
def test_no_improvement_loses(chain: Chain, seed: int) -> None:
    """Justified orders take no longer than before, and exchanged ones no longer than these."""
    shop, draw = shop_of(chain), Random(seed)
    first = by_priority(shop, drawn_priorities(shop, draw))
    better, orders = justified(shop, first)
    assert better.seconds <= first.seconds + ROUNDING
    _, best = exchanged(shop, orders, steps=20, enough_seconds=0.0, draw=draw)
    times = times_of(shop, best)
    assert times is not None
    assert times.seconds <= better.seconds + ROUNDING
    assert abs(times.seconds - simulated_seconds(chain, shop, best)) < ROUNDING


def test_ranks_that_wait_in_a_circle_have_no_times() -> None:
    """Where the first rank waits for a gradient before it gives the input, nothing comes of it."""
    cost = StageCosts(forward_seconds=1.0, backward_seconds=2.0)
    shop = shop_of(Chain(costs=[cost] * 2, links=[Link()], limits=[2, 2], microbatches=1))
    orders = [[1, 0, 2], [3, 4, 5]]
    assert times_of(shop, orders) is None


def test_an_exchange_finds_what_one_swap_gains() -> None:
    """From weight halves first to the order in which the stage before goes on earlier."""
    cost = StageCosts(forward_seconds=1.0, backward_seconds=2.0, weight_backward_seconds=1.0)
    shop = shop_of(Chain(costs=[cost] * 2, links=[Link()], limits=[2, 2], microbatches=2))
    slow = [[0, 1, 2, 4, 3, 5], [6, 8, 10, 7, 9, 11]]
    before = times_of(shop, slow)
    _, best = exchanged(shop, slow, steps=10, enough_seconds=0.0, draw=Random(0))
    after = times_of(shop, best)
    assert before is not None
    assert after is not None
    assert after.seconds < before.seconds
