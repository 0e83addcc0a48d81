"""Cut edges of all stages at once, against one stage after another."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.planning.search.stage_costs.borders import cut_edges, shared_tensors
from diaulos.planning.search.stage_costs.downsets import (
    Downsets,
    enumerate_downsets,
    enumerate_pairs,
)
from tests.planning.problems import problems
from tests.planning.wide_graphs import graph_of

Ends = list[tuple[int, int]]


def each_edge(ends: Ends, rows: set[int], entering: list[int], leaving: list[int]) -> int:
    """What the edges that enter or leave some layers cost."""
    return sum(
        entering[edge] if target in rows else leaving[edge]
        for edge, (source, target) in enumerate(ends)
        if (source in rows) != (target in rows)
    )


def each_tensor(ends: Ends, rows: set[int], entering: list[int], leaving: list[int]) -> int:
    """The same, of all edges of one source only the costliest in each direction."""
    costliest: dict[tuple[int, bool], int] = {}
    for edge, (source, target) in enumerate(ends):
        if (source in rows) != (target in rows):
            cost = entering[edge] if target in rows else leaving[edge]
            key = (source, target in rows)
            costliest[key] = max(cost, costliest.get(key, 0))
    return sum(costliest.values())


both = pytest.mark.parametrize(
    ("many", "one"), [(cut_edges, each_edge), (shared_tensors, each_tensor)]
)


def assert_equal(
    many: Callable[..., np.ndarray],
    one: Callable[..., int],
    ends: Ends,
    downsets: Downsets,
    costs: tuple[list[int], list[int]],
) -> None:
    """All pairs cost what each stage costs by itself."""
    pairs = enumerate_pairs(downsets)
    found = many(ends, downsets, pairs, *(np.array(some, np.int64) for some in costs))
    inside = downsets.members[pairs.outer] & ~downsets.members[pairs.inner]
    wanted = [one(ends, set(np.flatnonzero(row).tolist()), *costs) for row in inside]
    assert found.tolist() == wanted


@both
@given(problem=problems(), data=st.data())
def test_equals_a_sum_over_edges(many, one, problem, data) -> None:
    """For any graph and any costs, also such as skip over stages."""
    graph = problem.graph
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    ends = [(index[edge.source], index[edge.target]) for edge in graph.edges]
    amounts = st.lists(st.integers(0, 9), min_size=len(ends), max_size=len(ends))
    costs = data.draw(amounts), data.draw(amounts)
    assert_equal(many, one, ends, enumerate_downsets(graph), costs)


@both
def test_more_than_eight_edges_over_one_stage(many, one) -> None:
    """Twelve skips over a layer in the middle, of different costs, are each taken off."""
    ends = [(a, b) for a in range(4) for b in range(5, 8)] + [(3, 4), (4, 5)]
    graph = graph_of([1.0] * 8, [*ends, *((i, i + 1) for i in range(3)), (5, 6), (6, 7)])
    entering = [1 << i for i in range(len(ends))]
    assert_equal(many, one, ends, enumerate_downsets(graph), (entering, entering[::-1]))


def test_no_edges() -> None:
    """Where nothing is cut nothing is paid."""
    downsets = enumerate_downsets(graph_of([1.0, 1.0], []))
    none = np.zeros(0, np.int64)
    pairs = enumerate_pairs(downsets)
    assert cut_edges([], downsets, pairs, none, none).tolist() == [0] * len(pairs)
    assert shared_tensors([], downsets, pairs, none, none).tolist() == [0] * len(pairs)
