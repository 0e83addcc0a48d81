"""The lower bound of a batch."""

import itertools
from collections.abc import Iterator

from diaulos.errors import CheckError
from diaulos.schedules.actions import Kind
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import flushed
from diaulos.schedules.order_search.bounds import lower_bound_seconds
from diaulos.schedules.order_search.list_scheduling import Chain
from diaulos.schedules.simulate import simulate
from tests.schedules.shapes import line


def orders(stage: int, microbatches: int, limit: int) -> Iterator[list[Step]]:
    """All orders of a rank whose microbatches go in turn."""
    letters = "FIW" * microbatches
    for word in sorted(set(itertools.permutations(letters))):
        counts, order = dict.fromkeys("FIW", 0), []
        for letter in word:
            order.append((Kind(letter), stage, counts[letter]))
            counts[letter] += 1
            if not counts["F"] >= counts["I"] >= counts["W"]:
                break
            if counts["F"] - counts["W"] > limit:
                break
        else:
            yield order


def best_of_all(chain: Chain) -> float:
    """The least makespan of all orders of two stages."""
    shape = line(2, chain.microbatches)
    both = [list(orders(stage, chain.microbatches, chain.limits[stage])) for stage in (0, 1)]
    best = float("inf")
    for pair in itertools.product(*both):
        schedule = flushed("any", shape, range(1), order_of=pair.__getitem__, limits=chain.limits)
        try:
            best = min(best, simulate(schedule, chain.costs, chain.links).makespan_seconds)
        except CheckError:
            continue
    return best


def test_no_order_is_better() -> None:
    """Of two stages and two microbatches all orders are tried, for many times and limits."""
    for times in ((1, 1, 1, 1, 1, 1), (3, 1, 2, 1, 4, 2), (1, 5, 3, 2, 2, 2), (4, 4, 1, 1, 1, 6)):
        costs = [
            StageCosts(
                forward_seconds=f, backward_seconds=i + w, weight_backward_seconds=w, output_bytes=1
            )
            for f, i, w in (times[:3], times[3:])
        ]
        for limits in ((1, 1), (2, 1), (2, 2)):
            link = Link(latency_seconds=1.0)
            chain = Chain(costs=costs, links=[link], limits=limits, microbatches=2)
            assert lower_bound_seconds(chain, most_chunks=1) <= best_of_all(chain)


def test_the_bound_is_met_where_closed_forms_are_best() -> None:
    """ZB-H1 and ZB-H2 of equal parts, and a microbatch at a time."""
    cost = StageCosts(forward_seconds=1, backward_seconds=2)
    bounds = {
        limit: lower_bound_seconds(
            Chain(costs=[cost] * 8, links=[Link()] * 7, limits=[limit] * 8, microbatches=16),
            most_chunks=1,
        )
        for limit in (1, 8, 15)
    }
    assert bounds == {1: 16 * (8 + 8 + 1), 8: 55.0, 15: 55.0}


def test_parts_begin_sooner() -> None:
    """Where stages may be cut in v, only a v-th of each forward stands before the next rank."""
    cost = StageCosts(forward_seconds=1, backward_seconds=2)
    chain = Chain(costs=[cost] * 8, links=[Link()] * 7, limits=[8] * 8, microbatches=16)
    assert lower_bound_seconds(chain, most_chunks=2) == 48 + 7 / 2
    assert lower_bound_seconds(chain, most_chunks=4) == 48 + 7 / 4
