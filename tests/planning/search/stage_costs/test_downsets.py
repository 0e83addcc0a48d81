"""Downsets are the sets closed under successors, and pairs are the nested ones."""

from itertools import product

import pytest
from hypothesis import given

from diaulos.models.graph import Edge, Layer, LayerGraph
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.stage_costs import downsets as downsets_module
from diaulos.planning.search.stage_costs.downsets import (
    TooManyStagesError,
    enumerate_downsets,
    enumerate_pairs,
)
from tests.planning.problems import chain, option, problems


@given(problems())
def test_downsets_are_all_sets_closed_under_successors(problem: PlanningProblem) -> None:
    """Exactly the subsets that hold the successors of their layers are found, each once."""
    graph = problem.graph
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    edges = [(index[edge.source], index[edge.target]) for edge in graph.edges]
    wanted = {
        members
        for members in product((False, True), repeat=len(index))
        if all(members[target] or not members[source] for source, target in edges)
    }
    found = [tuple(members) for members in enumerate_downsets(graph).members.tolist()]
    assert len(found) == len(wanted)
    assert set(found) == wanted
    assert [sum(members) for members in found] == sorted(sum(members) for members in found)


@given(problems())
def test_pairs_are_all_nested_downsets(problem: PlanningProblem) -> None:
    """Each pair of a downset and a smaller one inside it is found once, outer ones in order."""
    downsets = enumerate_downsets(problem.graph)
    pairs = enumerate_pairs(downsets)
    members = [set(row.nonzero()[0].tolist()) for row in downsets.members]
    wanted = [
        (outer, inner)
        for outer in range(len(members))
        for inner in range(len(members))
        if members[inner] < members[outer]
    ]
    assert list(zip(pairs.outer.tolist(), pairs.inner.tolist(), strict=True)) == wanted


def test_a_long_chain_needs_several_words() -> None:
    """A chain of n layers has n + 1 downsets and all pairs of them, beyond 64 layers too."""
    downsets = enumerate_downsets(chain(*[[option()]] * 150))
    assert len(downsets) == 151
    assert len(enumerate_pairs(downsets)) == 151 * 150 // 2


def test_too_many_downsets_are_refused() -> None:
    """A fan of 16 leaves is refused in words that say what would work."""
    layers = tuple(Layer(id=i, options=(option(),)) for i in range(17))
    edges = tuple(Edge(source=0, target=i, bytes=1.0) for i in range(1, 17))
    message = r"more than 20000 downsets.*merge layers that always run together"
    with pytest.raises(TooManyStagesError, match=message):
        enumerate_downsets(LayerGraph(layers=layers, edges=edges))


def test_extra_edges_order_layers() -> None:
    """Three layers that the graph leaves free and two edges put in a row have four downsets."""
    graph = LayerGraph(layers=tuple(Layer(id=i, options=(option(),)) for i in (5, 3, 9)))
    assert len(enumerate_downsets(graph)) == 8
    ordered = enumerate_downsets(graph, [(9, 5), (5, 3)])
    assert ordered.members.tolist() == [
        [False, False, False],
        [False, True, False],
        [True, True, False],
        [True, True, True],
    ]
    assert ordered.level_starts.tolist() == [0, 1, 2, 3, 4]


def test_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph may have few enough downsets but too many pairs of them."""
    monkeypatch.setattr(downsets_module, "MOST_PAIRS", 1_000)
    layers = tuple(Layer(id=i, options=(option(),)) for i in range(8))
    downsets = enumerate_downsets(LayerGraph(layers=layers))
    with pytest.raises(TooManyStagesError, match=r"256 downsets with more than 1000 nested pairs"):
        enumerate_pairs(downsets)
