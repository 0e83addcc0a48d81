"""Orders that are found for a batch, and those that repeat a part of others."""

import pytest

from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.order_search.extension import extended
from diaulos.schedules.order_search.justification import inserted
from diaulos.schedules.order_search.list_scheduling import Chain
from diaulos.schedules.order_search.shop import shop_of, times_of
from diaulos.schedules.order_search.shop_search import found_orders

COST = StageCosts(forward_seconds=1.0, backward_seconds=2.0, weight_backward_seconds=1.0)


def chain(depth: int, microbatches: int, limit: int) -> Chain:
    return Chain(
        costs=[COST] * depth,
        links=[Link()] * (depth - 1),
        limits=[limit] * depth,
        microbatches=microbatches,
    )


@pytest.mark.parametrize("behind", [2, 3, 4])
def test_a_steady_part_is_repeated(behind: int) -> None:
    """On one stage, where each microbatch does what the one before did, nothing is lost."""
    few, many = shop_of(chain(1, 6, 2)), shop_of(chain(1, 14, 2))
    times = times_of(few, [[place + 6 * kind for place in range(6) for kind in range(3)]])
    assert times is not None
    assert times.seconds == 18.0
    priorities = extended(few, times, many, part=2, behind=behind)
    found, (order,) = inserted(many, priorities)
    assert found.seconds == 42.0
    assert [many.steps[one][2] for one in order] == [n for n in range(14) for _ in range(3)]


def test_many_microbatches_gain_by_what_few_do() -> None:
    """24 microbatches on 4 stages with 3 in flight: 84 s, which CP-SAT proves the least."""
    given = chain(4, 24, 3)
    orders = found_orders(given, enough_seconds=84.0)
    assert orders is not None
    shop = shop_of(given)
    places = {step: one for one, step in enumerate(shop.steps)}
    times = times_of(shop, [[places[step] for step in order] for order in orders])
    assert times is not None
    assert times.seconds == 84.0


def test_too_large_batches_are_left_to_others() -> None:
    """Where not even one order could be placed there is none."""
    assert found_orders(chain(16, 1024, 16), enough_seconds=0.0) is None
