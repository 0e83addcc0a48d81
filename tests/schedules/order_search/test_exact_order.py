"""The solver's orders: as good as enumeration finds, and an oracle for the search."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.errors import CheckError, InputError
from diaulos.schedules.actions import Kind
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import flushed
from diaulos.schedules.order_search.exact_order import exact_order, proven
from diaulos.schedules.order_search.list_scheduling import Chain
from diaulos.schedules.order_search.search import Found, search
from diaulos.schedules.simulate import Simulator
from tests.schedules.shapes import line

pytest.importorskip("ortools", reason="the extra solver is not installed")

FREE = Link()
seconds = st.integers(1, 9).map(float)
parts = (Kind.FORWARD, Kind.INPUT_BACKWARD, Kind.WEIGHT_BACKWARD)


def costs_of(*times: tuple[float, float, float], output_bytes: float = 0.0) -> list[StageCosts]:
    return [
        StageCosts(
            forward_seconds=forward,
            backward_seconds=of_input + of_weights,
            weight_backward_seconds=of_weights,
            output_bytes=output_bytes,
        )
        for forward, of_input, of_weights in times
    ]


def makespan(found: Found, costs: Sequence[StageCosts], link: Link = FREE) -> float:
    return Simulator(found.schedule).makespan_seconds(costs, link)


def interleavings(stage: int, microbatches: int) -> Iterator[list[Step]]:
    """All orders of a stage in which each microbatch goes forward, back, and then its weights."""
    done = [0] * microbatches
    row: list[Step] = []

    def extend() -> Iterator[list[Step]]:
        if len(row) == 3 * microbatches:
            yield list(row)
        for number in range(microbatches):
            if done[number] < 3:
                row.append((parts[done[number]], stage, number))
                done[number] += 1
                yield from extend()
                done[number] -= 1
                row.pop()

    return extend()


def keeps(order: Sequence[Step], limit: int) -> bool:
    held = 0
    for kind, _, _ in order:
        held += (kind is Kind.FORWARD) - (kind is Kind.WEIGHT_BACKWARD)
        if held > limit:
            return False
    return True


@given(times=st.lists(st.tuples(seconds, seconds, seconds), min_size=2, max_size=2), data=st.data())
@settings(max_examples=8, deadline=None)
def test_no_order_at_all_is_faster(times, data: st.DataObject) -> None:
    """Two stages, two microbatches, enumerated: also orders in which microbatches overtake."""
    costs, shape = costs_of(*times), line(2, 2)
    limits = [data.draw(st.integers(1, 2)) for _ in times]
    rows = [[o for o in interleavings(s, 2) if keeps(o, limits[s])] for s in range(2)]
    fastest = float("inf")
    for orders in product(*rows):
        try:
            schedule = flushed("x", shape, range(1), order_of=orders.__getitem__, limits=limits)
            check(schedule)
        except CheckError:
            continue
        fastest = min(fastest, Simulator(schedule).makespan_seconds(costs, FREE))
    chain = Chain(costs=costs, links=[FREE], limits=limits, microbatches=2)
    exact = exact_order(chain, most_seconds=1000.0, effort=10.0)
    assert exact.lower_bound_seconds == fastest
    best = flushed("x", shape, range(1), order_of=exact.orders.__getitem__, limits=limits)
    check(best)
    assert Simulator(best).makespan_seconds(costs, FREE) == fastest


@given(
    times=st.lists(st.tuples(seconds, seconds, seconds), min_size=1, max_size=4),
    microbatches=st.integers(1, 6),
    latency=st.integers(0, 2),
    data=st.data(),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_the_search_is_near_what_is_proven(
    times, microbatches: int, latency: int, data: st.DataObject
) -> None:
    """The solver's bound lies between the closed one and the search, which is within a tenth."""
    costs, shape = costs_of(*times), line(len(times), microbatches)
    limits = [data.draw(st.integers(1, len(times) + 1)) for _ in times]
    link = Link(latency_seconds=latency)
    found = search(shape, range(2), costs, link, limits)
    better = proven(found, shape, range(2), costs, link, limits=limits, effort=5.0)
    check(better.schedule)
    bound = better.lower_bound_seconds
    assert found.lower_bound_seconds <= bound <= makespan(better, costs, link) + 1e-9
    assert makespan(better, costs, link) <= makespan(found, costs, link)
    assert makespan(found, costs, link) <= 1.1 * bound


@pytest.mark.parametrize(
    ("times", "microbatches", "limit", "best"),
    [((1, 1, 1), 8, 4, 27.0), ((10, 12, 9), 8, 4, 287.0), ((10, 12, 9), 16, 8, 587.0)],
)
def test_zero_bubble_schedules_are_the_best_of_their_memory(
    times: tuple[float, float, float], microbatches: int, limit: int, best: float
) -> None:
    """Nothing of one stage a rank with as much memory as 1F1B is faster, ZB-H1's 587 included."""
    costs = costs_of(*[times] * limit)
    chain = Chain(
        costs=costs, links=[FREE] * (limit - 1), limits=[limit] * limit, microbatches=microbatches
    )
    assert exact_order(chain, most_seconds=best, effort=60.0).lower_bound_seconds == best


def test_a_better_order_than_the_search_finds_is_taken() -> None:
    """Uneven stages of which one holds little: 122 s are possible, and nothing is faster."""
    costs, shape = costs_of((3, 4, 1), (2, 9, 6), (8, 1, 6), (5, 3, 9)), line(4, 6)
    limits = [5, 2, 5, 5]
    found = search(shape, range(2), costs, FREE, limits)
    better = proven(found, shape, range(2), costs, FREE, limits=limits, effort=10.0)
    assert makespan(better, costs) == better.lower_bound_seconds == 2 * 122.0
    poor = replace(found, schedule=search(shape, range(2), costs, FREE, [1] * 4).schedule)
    again = proven(poor, shape, range(2), costs, FREE, limits=limits, effort=10.0)
    assert makespan(again, costs) == 2 * 122.0 < makespan(poor, costs)


def test_the_same_case_ends_the_same_way() -> None:
    """Stopped early or not, the orders and the bound are those of the last time."""
    costs = costs_of((1.5, 2.0, 1.25), (2.0, 2.5, 1.0), (1.0, 3.0, 2.0))
    chain = Chain(costs=costs, links=[FREE] * 2, limits=[3, 2, 2], microbatches=6)
    for effort in (0.01, 5.0):
        first, again = (exact_order(chain, most_seconds=100.0, effort=effort) for _ in range(2))
        assert first == again


def test_times_that_are_no_decimals_are_bounded_from_below() -> None:
    """Thirds of a second are rounded down a little, so that the bound stays one."""
    costs, shape = costs_of(*[(1 / 3, 2 / 3, 1 / 7)] * 2), line(2, 4)
    found = search(shape, range(1), costs, FREE, [2, 2])
    better = proven(found, shape, range(1), costs, FREE, limits=[2, 2], effort=5.0)
    assert better.lower_bound_seconds == pytest.approx(makespan(better, costs), rel=1e-4)
    assert better.lower_bound_seconds <= makespan(better, costs)


def test_schedules_of_several_stages_a_rank_are_refused() -> None:
    """The solver orders whole stages."""
    costs, shape, limits = costs_of(*[(1.0, 1.0, 1.0)] * 4), line(4, 8), [4] * 4
    cut = search(shape, range(1), costs, FREE, limits, chunks=2)
    with pytest.raises(InputError, match="the schedule has 2 stages a rank"):
        proven(cut, shape, range(1), costs, FREE, limits=limits, effort=1.0)
