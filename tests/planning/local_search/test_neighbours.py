"""Neighbours: what one step of the local search can reach."""

from dataclasses import replace

from hypothesis import assume, given, settings

from diaulos.errors import InputError
from diaulos.models.graph import Layer, LayerGraph
from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.local_search.balance import Balance
from diaulos.planning.local_search.neighbours import Neighbours
from diaulos.planning.local_search.outlines import Degrees, Outline, Outlines
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problem, problems

ONE = Degrees(1, 1)


def neighbours_of(given_problem: PlanningProblem) -> Neighbours:
    outlines = Outlines.of(replace(given_problem, pipelining=ONE_F_ONE_B))
    assert outlines is not None
    return Neighbours(outlines, Balance(outlines=outlines))


FOUR = neighbours_of(
    problem(chain(*[[option(seconds=1.0 + i)] for i in range(4)]), devices=4, microbatches=4)
)


def test_a_layer_changes_over_a_border() -> None:
    """In both directions, but no stage becomes empty."""
    found = set(FOUR.of(Outline((4, 3, 0), (ONE, ONE))))
    assert Outline((4, 2, 0), (ONE, ONE)) in found
    assert Outline((4, 4, 0), (ONE, ONE)) not in found


def test_degrees_change() -> None:
    """Of one stage to any, of two by a step each."""
    found = set(FOUR.of(Outline((4, 2, 0), (ONE, ONE))))
    two = Degrees(2, 1)
    assert Outline((4, 2, 0), (two, ONE)) in found
    assert Outline((4, 2, 0), (two, two)) in found
    assert Outline((4, 2, 0), (Degrees(4, 1), ONE)) not in found, "more than four devices"


def test_stages_merge_split_and_come() -> None:
    """The depth changes by one, with the cuts balanced."""
    found = list(FOUR.of(Outline((4, 2, 0), (ONE, ONE))))
    assert Outline((4, 0), (ONE,)) in found
    assert Outline((4, 2, 1, 0), (ONE, ONE, ONE)) in found
    assert {len(outline.degrees) for outline in found} == {1, 2, 3}


def test_parallel_layers_change_places() -> None:
    """Where neither of two stages needs the other."""
    graph = LayerGraph(
        layers=tuple(Layer(id=i, options=(option(seconds=i + 1.0),)) for i in range(2)), edges=()
    )
    neighbours = neighbours_of(problem(graph, devices=2, microbatches=2))
    index_of = neighbours.outlines.index_of
    first, second = (index_of[frozenset({i})] for i in (0, 1))
    assert Outline((3, second, 0), (ONE, ONE)) in set(
        neighbours.of(Outline((3, first, 0), (ONE, ONE)))
    )


@settings(max_examples=30, deadline=None)
@given(problems(most_layers=4))
def test_all_are_outlines_of_the_problem(plain: PlanningProblem) -> None:
    """Nested downsets from all layers to none, within the devices and the microbatches."""
    try:
        outlines = Outlines.of(replace(plain, pipelining=ONE_F_ONE_B))
    except InputError:
        outlines = None
    assume(outlines is not None)
    neighbours = Neighbours(outlines, Balance(outlines=outlines))
    everything = set(outlines.first(5_000))
    for outline in outlines.first(20):
        near = set(neighbours.of(outline))
        assert len(everything) == 5_000 or near <= everything
