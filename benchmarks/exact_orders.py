"""How near the search for an order comes to what a solver proves, on small uneven pipelines.

    python benchmarks/exact_orders.py

Takes a few minutes. Needs the extra `solver`.
"""

import random
from statistics import mean

from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.order_search.exact_order import proven
from diaulos.schedules.order_search.search import search
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

CASES = 2000
MOST_STAGES, MOST_MICROBATCHES, MOST_SECONDS = 4, 8, 9
FREE = Link()


def random_costs(draw: random.Random) -> StageCosts:
    forward, of_input, of_weights = (draw.randint(1, MOST_SECONDS) for _ in range(3))
    return StageCosts(
        forward_seconds=forward,
        backward_seconds=of_input + of_weights,
        weight_backward_seconds=of_weights,
    )


def compare(draw: random.Random) -> tuple[float, float, float, float]:
    """What the search and the solver reach in one case, and the bound of each."""
    depth = draw.randint(1, MOST_STAGES)
    shape = PipelineShape(replicas=(1,) * depth, microbatches=draw.randint(1, MOST_MICROBATCHES))
    costs = [random_costs(draw) for _ in range(depth)]
    limits = [draw.randint(1, depth + 1) for _ in range(depth)]
    found = search(shape, range(1), costs, FREE, limits)
    best = proven(found, shape, range(1), costs, FREE, limits=limits, effort=5.0)
    seconds = [Simulator(one.schedule).makespan_seconds(costs, FREE) for one in (found, best)]
    return *seconds, found.lower_bound_seconds, best.lower_bound_seconds


def main() -> None:
    draw = random.Random(7)
    results = [compare(draw) for _ in range(CASES)]
    gaps = [searched / best - 1 for searched, best, _, _ in results]
    print(f"{CASES} cases of up to {MOST_STAGES} stages and {MOST_MICROBATCHES} microbatches")
    print(f"proven by the closed bound: {mean(s <= low for s, _, low, _ in results):.1%}")
    print(f"proven by the solver:       {mean(b <= bound for _, b, _, bound in results):.1%}")
    print(f"the search found the best:  {mean(gap <= 0 for gap in gaps):.1%}")
    print(f"it was slower by:           {mean(gaps):.2%} on average, {max(gaps):.1%} at worst")


if __name__ == "__main__":
    main()
