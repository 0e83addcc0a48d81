"""Graphs with very many downsets get few of them, without losing a layer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.planning.merging.coarsening import coarsen
from diaulos.planning.merging.contraction import identity
from diaulos.planning.merging.downset_count import count_downsets, depth_first_line
from diaulos.planning.merging.lossless import contract
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import problems
from tests.planning.wide_graphs import cells, fan, graph_of, random_graph

LIMIT = 20_000


@pytest.mark.parametrize(
    "graph",
    [
        fan(16, alike=False),
        fan(60, alike=False),
        random_graph(200, neighbours=1, seed=1),
        random_graph(200, neighbours=2, seed=1),
        cells(4),
        cells(26),
        graph_of([1.0] * 200, []),
    ],
    ids=["fan-16", "fan-60", "random-1", "random-2", "cells-4", "cells-26", "apart"],
)
def test_wide_graphs_get_narrow(graph: LayerGraph) -> None:
    """Far too many downsets become few enough, and not far fewer than allowed."""
    assert count_downsets(graph, most=LIMIT) is None
    coarse = coarsen(identity(graph), most_downsets=LIMIT)
    count = count_downsets(coarse.graph, coarse.order_edges, most=LIMIT)
    assert count is not None
    assert count > LIMIT / 4
    assert coarse.graph == graph


@given(problems(), st.integers(7, 40))
def test_no_more_is_ordered_than_needed(problem: PlanningProblem, most: int) -> None:
    """The limit is kept, without the last pair it would not be, and no cycle arises."""
    before = contract(problem)
    coarse = coarsen(before, most_downsets=most)
    edges = coarse.order_edges
    assert count_downsets(coarse.graph, edges, most=most) is not None
    assert edges[: len(before.order_edges)] == before.order_edges
    if edges != before.order_edges:
        assert count_downsets(coarse.graph, edges[:-1], most=most) is None
    ids = [layer.id for layer in coarse.graph.layers]
    ends = [(edge.source, edge.target) for edge in coarse.graph.edges]
    assert len(depth_first_line(ids, [*ends, *edges])) == len(ids)


def test_a_chain_can_be_too_long() -> None:
    """A graph that has too many downsets even in one order is refused."""
    graph = graph_of([1.0] * 10, [])
    assert len(coarsen(identity(graph), most_downsets=11).order_edges) == 9
    with pytest.raises(InputError, match="has 10 layers; with at most 10 downsets it can have 9"):
        coarsen(identity(graph), most_downsets=10)
