"""The search for an order: within the limit, above the bound, never worse than closed forms."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts, chunk_costs
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.order_search.search import search
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import simulate
from tests.schedules.shapes import line

seconds = st.integers(1, 20).map(float)


@st.composite
def stage_costs(draw: st.DrawFn, most_stages: int = 5) -> list[StageCosts]:
    """Uneven stages."""
    costs = []
    for _ in range(draw(st.integers(1, most_stages))):
        forward, of_input, of_weights = draw(seconds), draw(seconds), draw(seconds)
        costs.append(
            StageCosts(
                forward_seconds=forward,
                backward_seconds=of_input + of_weights,
                weight_backward_seconds=of_weights,
                output_bytes=draw(st.integers(0, 3)),
            )
        )
    return costs


def even(depth: int, forward: float, of_input: float, of_weights: float) -> list[StageCosts]:
    cost = StageCosts(
        forward_seconds=forward,
        backward_seconds=of_input + of_weights,
        weight_backward_seconds=of_weights,
    )
    return [cost] * depth


@given(
    costs=stage_costs(),
    microbatches=st.integers(1, 9),
    data=st.data(),
    chunks=st.none() | st.integers(1, 3),
)
@settings(max_examples=25)
def test_it_is_as_good_as_every_closed_form_of_its_memory(
    costs: Sequence[StageCosts], microbatches: int, data: st.DataObject, chunks: int | None
) -> None:
    """Checked, within the limits, above the bound, and not slower than what keeps the limits."""
    depth = len(costs)
    limits = [data.draw(st.integers(1, 2 * depth)) for _ in costs]
    link = Link(latency_seconds=data.draw(st.integers(0, 2)), bandwidth_bytes_per_second=2.0)
    shape = line(depth, microbatches)
    found = search(shape, range(2), costs, link, limits, chunks=chunks)
    check(found.schedule)
    assert (found.schedule.name, found.schedule.batches) == ("auto", 2)
    timeline = simulate(found.schedule, found.costs, link)
    for rank, limit in enumerate(limits):
        assert timeline.peak_in_flight(rank) <= limit * found.schedule.shape.chunks
    assert timeline.makespan_seconds >= found.lower_bound_seconds - 1e-9
    for name in ("gpipe", "1f1b", "zb-h1", "zb-h2", "interleaved", "breadth-first", "zb-v"):
        if GENERATORS[name].chunks != 1 and chunks in (None, 1):
            continue
        closed = generate(name, GENERATORS[name].shape(shape, chunks or 1), 2)
        parts = closed.shape.chunks
        if all(
            needed <= limit * parts
            for needed, limit in zip(closed.in_flight_limits, limits, strict=True)
        ):
            other = simulate(closed, chunk_costs(closed.shape, costs), link)
            assert timeline.makespan_seconds <= other.makespan_seconds + 1e-9


@pytest.mark.parametrize(
    ("times", "limit", "chunks", "makespan"),
    [
        ((1, 1, 1), 8, None, 55.0),
        ((1, 1, 1), 16, None, 55.0),
        ((10, 12, 9), 8, None, 587.0),
        ((10, 12, 9), 16, None, 566.0),
        ((1, 1, 1), 8, 2, 51.5),
        ((10, 12, 9), 8, 2, 538.0),
    ],
)
def test_published_makespans_are_met(
    times: tuple[float, float, float], limit: int, chunks: int | None, makespan: float
) -> None:
    """8 stages, 16 microbatches: with the memory of 1F1B, with twice as much, with cut stages."""
    costs = even(8, *times)
    found = search(line(8, 16), range(1), costs, Link(), [limit] * 8, chunks=chunks)
    timeline = simulate(found.schedule, found.costs, Link())
    assert timeline.makespan_seconds == makespan
    assert found.lower_bound_seconds <= makespan


def test_uneven_stages_gain() -> None:
    """The searched order reaches the bound, which no closed form of its memory does."""
    times = [(15, 9, 6), (7, 7, 14), (11, 10, 15), (14, 13, 10)]
    costs = [even(1, *one)[0] for one in times]
    found = search(line(4, 12), range(1), costs, Link(), [4] * 4)
    reached = simulate(found.schedule, found.costs, Link()).makespan_seconds
    others = [
        simulate(generate(name, line(4, 12), 1), costs, Link()).makespan_seconds
        for name in ("1f1b", "zb-h1")
    ]
    assert (found.lower_bound_seconds, reached, min(others)) == (477.0, 477.0, 492.0)


def test_less_room_than_1f1b_needs_is_used() -> None:
    """With fewer in flight than stages an order is found all the same, in the end one by one."""
    makespans = []
    for limit in (1, 2, 3, 4):
        found = search(line(4, 8), range(1), even(4, 1, 1, 1), Link(), [limit] * 4)
        check(found.schedule)
        makespans.append(simulate(found.schedule, found.costs, Link()).makespan_seconds)
    assert makespans[0] == 8 * (4 + 4 + 1)
    assert makespans == sorted(makespans, reverse=True)


def test_replicas_share_the_order() -> None:
    """Two replicas run the order of one, each with its own microbatches."""
    shape = PipelineShape(replicas=(2, 2), microbatches=8)
    found = search(shape, range(2), even(2, 1, 1, 1), Link(), [2, 2])
    check(found.schedule)
    texts = [[(a.kind, a.stage) for a in row] for row in found.schedule.actions]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]


def test_what_it_cannot_search_is_refused() -> None:
    """Limits are one per stage; degrees are equal."""
    with pytest.raises(InputError, match=r"limits are \[1\]; each of the 2 stages needs one"):
        search(line(2, 2), range(1), even(2, 1, 1, 1), Link(), [1])
    unequal = PipelineShape(replicas=(1, 2), microbatches=2)
    with pytest.raises(InputError, match="equal data-parallel degree"):
        search(unequal, range(1), even(2, 1, 1, 1), Link(), [1, 1])


@pytest.mark.parametrize(
    ("times", "depth", "microbatches", "limit", "makespan"),
    [
        ((1, 1, 1), 8, 16, 6, 61.0),
        ((10, 12, 9), 8, 16, 6, 661.0),
        ((10, 12, 9), 8, 16, 4, 859.0),
        ((5, 7, 3), 4, 8, 3, 171.0),
    ],
)
def test_proven_makespans_are_met_with_few_in_flight(
    times: tuple[float, float, float], depth: int, microbatches: int, limit: int, makespan: float
) -> None:
    """Below the depth of 1F1B: what CP-SAT proves that no order of whole stages beats."""
    costs = even(depth, *times)
    found = search(line(depth, microbatches), range(1), costs, Link(), [limit] * depth)
    assert simulate(found.schedule, found.costs, Link()).makespan_seconds == makespan
