"""Equal stages: which ways there are to deal layers, and that the fastest is taken."""

from dataclasses import replace

import pytest
from hypothesis import given

from diaulos.models.graph import Edge, Layer, LayerGraph
from diaulos.planning.baselines.equal import equal, equal_splits
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.exact import exact
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problems


def with_names(graph: LayerGraph, names: list[str]) -> LayerGraph:
    layers = [replace(layer, name=name) for layer, name in zip(graph.layers, names, strict=True)]
    return replace(graph, layers=tuple(layers))


def test_the_last_stages_take_one_more() -> None:
    """Seven layers on three stages are dealt 2, 2, 3."""
    splits = list(equal_splits(chain(*[[option()]] * 7), 3))
    assert splits == [
        ((0, 1, 2, 3, 4, 5, 6),),
        ((0, 1, 2), (3, 4, 5, 6)),
        ((0, 1), (2, 3), (4, 5, 6)),
    ]


def test_there_are_no_empty_stages() -> None:
    """With more stages allowed than there are layers, each has at least one layer."""
    assert [len(split) for split in equal_splits(chain([option()], [option()]), 9)] == [1, 2]


def test_repeated_layers_are_dealt_and_the_ends_follow() -> None:
    """The ends go with the first and last repetition, or make stages of their own."""
    names = ["embedding", "block_0", "block_1", "block_2", "block_3", "head"]
    graph = with_names(chain(*[[option()]] * 6), names)
    assert list(equal_splits(graph, 4)) == [
        ((0, 1, 2, 3, 4, 5),),
        ((0,), (1, 2, 3, 4), (5,)),
        ((0, 1, 2), (3, 4, 5)),
        ((0,), (1, 2), (3, 4), (5,)),
        ((0, 1), (2,), (3, 4, 5)),
        ((0, 1), (2,), (3,), (4, 5)),
    ]


def test_a_side_input_belongs_to_the_layers_before() -> None:
    """A mask that feeds every block is a layer before them, wherever it stands in the file."""
    blocks = tuple(Layer(id=i, name="Block", options=(option(),)) for i in range(3))
    mask = Layer(id=7, name="mask", options=(option(),))
    edges = [Edge(source=i, target=i + 1, bytes=1.0) for i in range(2)]
    edges += [Edge(source=7, target=i, bytes=1.0) for i in range(3)]
    graph = LayerGraph(layers=(*blocks, mask), edges=tuple(edges))
    assert list(equal_splits(graph, 2)) == [((7, 0, 1, 2),), ((7,), (0, 1, 2)), ((7, 0), (1, 2))]


def test_few_repetitions_are_not_dealt_apart() -> None:
    """Where the repeated layers are not most of the graph, all layers are dealt."""
    graph = with_names(chain(*[[option()]] * 4), ["a", "block_0", "block_1", "b"])
    assert list(equal_splits(graph, 2)) == [((0, 1, 2, 3),), ((0, 1), (2, 3))]


def test_a_layer_between_repetitions_is_not_dealt_apart() -> None:
    """Repetitions with a side path between them are no row of equals."""
    blocks = tuple(Layer(id=i, name="Block", options=(option(),)) for i in range(3))
    between = Layer(id=9, name="side", options=(option(),))
    ends = [(0, 1), (1, 2), (0, 9), (9, 2)]
    edges = tuple(Edge(source=a, target=b, bytes=1.0) for a, b in ends)
    splits = equal_splits(LayerGraph(layers=(*blocks, between), edges=edges), 1)
    assert [len(split[0]) for split in splits] == [4]


def test_the_order_is_that_of_a_stack() -> None:
    """Of the free layers the last one found is taken first, as Piper's code does."""
    layers = tuple(Layer(id=i, options=(option(),)) for i in range(6))
    ends = [(0, 2), (0, 3), (3, 4), (2, 4), (1, 5)]
    edges = tuple(Edge(source=a, target=b, bytes=1.0) for a, b in ends)
    split = next(equal_splits(LayerGraph(layers=layers, edges=edges), 1))
    assert split == ((1, 5, 0, 3, 2, 4),)


@given(problems())
def test_the_fastest_equal_plan_is_found(given_problem: PlanningProblem) -> None:
    """No equal plan within the limits is faster, and none is faster than the exact plan."""
    result = equal(given_problem)
    times = [
        evaluate(given_problem.graph, plan, given_problem.cluster).time_per_sample_seconds
        for plan in equal_plans(given_problem)
        if not violations(given_problem.graph, plan, given_problem.cluster)
    ]
    if result.evaluation is None:
        assert not times
        return
    time = result.evaluation.time_per_sample_seconds
    assert time == pytest.approx(min(times), rel=1e-12)
    best = exact(given_problem).evaluation
    assert best is not None
    assert best.time_per_sample_seconds <= time * (1 + 1e-12)
    assert not result.proven_optimal


def equal_plans(given_problem: PlanningProblem) -> list[Plan]:
    """Every plan of equal stages, from the definition; options are the fastest of their kind."""
    plans = []
    for split in equal_splits(given_problem.graph, 100):
        for d in given_problem.data_degrees:
            for t in given_problem.tensor_degrees:
                for recompute in (False, True):
                    options = chosen_options(given_problem, t, recompute)
                    if options is not None:
                        stages = tuple(
                            Stage(
                                layers=tuple(
                                    i for i in given_problem.graph.topological_order if i in part
                                ),
                                data_parallel=d,
                                tensor_parallel=t,
                                options={i: options[i] for i in part},
                            )
                            for part in split
                        )
                        plans.append(Plan(stages=stages, microbatches=given_problem.microbatches))
    return plans


def chosen_options(
    given_problem: PlanningProblem, t: int, recompute: bool
) -> dict[int, str] | None:
    chosen = {}
    for layer in given_problem.graph.layers:
        options = given_problem.options(layer, t)
        kinds = [[o for o in options if o.recompute == kind] for kind in (recompute, False)]
        usable = kinds[0] or kinds[1]
        if not usable:
            return None
        chosen[layer.id] = min(usable, key=lambda o: o.seconds).name
    return chosen
