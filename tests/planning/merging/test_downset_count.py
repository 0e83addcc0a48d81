"""Downsets are counted right without being made."""

from itertools import product

import pytest
from hypothesis import given

from diaulos.models.graph import LayerGraph
from diaulos.planning.merging.downset_count import count_downsets, depth_first_line
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problems
from tests.planning.wide_graphs import cells, fan, graph_of


def closed_sets(graph: LayerGraph, order_edges: list[tuple[int, int]]) -> int:
    """The count, from the definition."""
    ids = [layer.id for layer in graph.layers]
    edges = [*((edge.source, edge.target) for edge in graph.edges), *order_edges]
    sets = [
        {layer for layer, inside in zip(ids, chosen, strict=True) if inside}
        for chosen in product((False, True), repeat=len(ids))
    ]
    return sum(all(b in some or a not in some for a, b in edges) for some in sets)


@given(problems())
def test_the_count_is_that_of_the_definition(problem: PlanningProblem) -> None:
    """All sets closed under successors are counted, with and without edges of order alone."""
    graph = problem.graph
    order = list(zip(graph.topological_order, graph.topological_order[2:], strict=False))
    for edges in ([], order):
        expected = closed_sets(graph, edges)
        assert count_downsets(graph, edges, most=expected) == expected
        assert count_downsets(graph, edges, most=expected - 1) is None


def test_known_counts() -> None:
    """A chain of n has n + 1, a fan of n leaves 2^n + 1, n layers apart 2^n."""
    assert count_downsets(chain(*[[option()]] * 500), most=10**6) == 501
    assert count_downsets(fan(16, alike=True), most=10**6) == 2**16 + 1
    assert count_downsets(graph_of([1.0] * 16, []), most=10**6) == 2**16


def test_an_order_against_the_graph_s_counts_too() -> None:
    """An edge of order from a layer that stands later in the file is kept as well."""
    graph = graph_of([1.0, 1.0, 1.0], [])
    assert count_downsets(graph, [(2, 1), (1, 0)], most=10) == 4


def test_branches_stay_together_on_the_line() -> None:
    """After a layer comes one that it made free, branch after branch."""
    edges = [(0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 5)]
    assert depth_first_line(range(6), edges) == [0, 1, 3, 2, 4, 5]


@pytest.mark.parametrize("count", [1, 3])
def test_the_line_keeps_to_all_edges(count: int) -> None:
    """Every layer stands once, after its predecessors."""
    graph = cells(count)
    edges = [(edge.source, edge.target) for edge in graph.edges]
    line = depth_first_line([layer.id for layer in graph.layers], edges)
    assert sorted(line) == [layer.id for layer in graph.layers]
    assert all(line.index(a) < line.index(b) for a, b in edges)
