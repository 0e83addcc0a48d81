"""The layer graph refuses what is no graph of layers, and knows its orders."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given

from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import option, problems


def layers(*ids: int) -> tuple[Layer, ...]:
    return tuple(Layer(id=i, options=(option(),)) for i in ids)


def edge(source: int, target: int) -> Edge:
    return Edge(source=source, target=target, bytes=1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LayerGraph(layers=()), "the graph has no layers"),
        (lambda: LayerGraph(layers=layers(1, 1)), "two layers have the id 1"),
        (lambda: LayerGraph(layers=layers(1), edges=(edge(1, 2),)), "names layer 2"),
        (lambda: LayerGraph(layers=layers(1), edges=(edge(1, 1),)), "is a loop"),
        (
            lambda: LayerGraph(layers=layers(1, 2), edges=(edge(1, 2), edge(1, 2))),
            "the edge 1 -> 2 stands twice",
        ),
        (
            lambda: LayerGraph(layers=layers(1, 2), edges=(edge(1, 2), edge(2, 1))),
            "the edges make a cycle",
        ),
        (
            lambda: LayerGraph(layers=(Layer(id=1, options=(option(receives={4: 1.0}),)),)),
            "synchronises with [4]",
        ),
        (lambda: Layer(id=1, options=()), "layer 1 has no options"),
        (lambda: Layer(id=1, options=(option(), option())), "two options 'plain'"),
        (lambda: option(""), "an option has an empty name"),
        (lambda: option(tensor_parallel=0), "tensor_parallel is 0"),
        (lambda: option(seconds=-1.0), "seconds is -1.0"),
        (lambda: option(seconds=float("nan")), "seconds is nan"),
        (lambda: option(sends={1: -1.0}), "the synchronised bytes with layer 1 is -1.0"),
        (lambda: FixedMemory(optimizer_bytes=-1.0), "optimizer_bytes is -1.0"),
        (lambda: Edge(source=1, target=2, bytes=-1.0), "bytes of the edge 1 -> 2 is -1.0"),
        (
            lambda: Option(
                name="x", seconds=1.0, forward_seconds=2.0, parameter_bytes=0, activation_bytes=0
            ),
            "forward_seconds is 2.0",
        ),
        (
            lambda: replace(option(seconds=1.0), weight_backward_seconds=1.5),
            "weight_backward_seconds is 1.5; it is a part of seconds, 1.0",
        ),
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    """Each broken rule is an error in words."""
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


@given(problems())
def test_the_order_follows_the_edges(problem: PlanningProblem) -> None:
    """Every layer stands once, after all layers that feed it."""
    graph = problem.graph
    order = graph.topological_order
    assert sorted(order) == sorted(graph.positions)
    assert all(order.index(e.source) < order.index(e.target) for e in graph.edges)


def test_the_source_s_order_rules_among_free_layers() -> None:
    """Where edges leave a choice, layers stand as in the source."""
    graph = LayerGraph(layers=layers(5, 3, 9, 1), edges=(edge(1, 3),))
    assert graph.topological_order == (5, 9, 1, 3)
    assert graph.predecessors[3] == (1,)
    assert graph.successors[1] == (3,)


def test_options_are_found_by_name_and_degree() -> None:
    """The same name may stand at several degrees; what there is not is told."""
    layer = Layer(id=1, name="mlp", options=(option(), option(tensor_parallel=2, seconds=0.5)))
    assert layer.option("plain", 2).seconds == 0.5
    assert [o.seconds for o in layer.options_at(1)] == [1.0]
    with pytest.raises(InputError, match=r"layer 1 \(mlp\) has no option 'x' .* it has 'plain'"):
        layer.option("x", 1)


def test_memory_grows_with_microbatches_in_flight() -> None:
    """Activations count once for each, the fixed kinds once."""
    memory = FixedMemory(parameters_bytes=1.0, gradients_bytes=2.0, temporary_bytes=4.0)
    some = Option(
        name="x", seconds=1.0, parameter_bytes=0, activation_bytes=10.0, fixed_memory=memory
    )
    assert some.fixed_bytes == 7.0
    assert some.memory_bytes(3) == 37.0
