"""Small planning problems for the tests: drawn at random, or made by hand."""

from dataclasses import replace

from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.planning.evaluate import evaluate
from diaulos.planning.problem import PlanningProblem, PlanningResult

_TENTHS = st.integers(0, 60).map(lambda tenths: tenths / 10)
"""Decimal amounts, which binary fractions only approximate; zero and equal ones are likely."""
_WILD = st.sampled_from((0.0, 1e-9, 1e-7, 0.3, 1.0, 1.0, 2.0, 3.0, 1e6))
"""Amounts of which some drown in others."""


def option(
    name: str = "plain",
    *,
    tensor_parallel: int = 1,
    seconds: float = 1.0,
    parameters: float = 0.0,
    activations: float = 0.0,
    fixed: float = 0.0,
    recompute: bool = False,
    receives: dict[int, float] | None = None,
    sends: dict[int, float] | None = None,
) -> Option:
    """An option, short to write down."""
    return Option(
        name=name,
        tensor_parallel=tensor_parallel,
        seconds=seconds,
        parameter_bytes=parameters,
        activation_bytes=activations,
        fixed_memory=FixedMemory(unspecified_bytes=fixed),
        recompute=recompute,
        input_sync_bytes=receives or {},
        output_sync_bytes=sends or {},
    )


def chain(*layers: list[Option], bytes_between: float = 0.0) -> LayerGraph:
    """Layers 0, 1, 2, ... in a row."""
    return LayerGraph(
        layers=tuple(Layer(id=i, options=tuple(some)) for i, some in enumerate(layers)),
        edges=tuple(
            Edge(source=i, target=i + 1, bytes=bytes_between) for i in range(len(layers) - 1)
        ),
    )


def problem(
    graph: LayerGraph,
    *,
    devices: int = 1,
    memory: float = 1e9,
    bandwidth: float = 1.0,
    microbatches: int = 1,
    **switches: bool,
) -> PlanningProblem:
    """A problem, short to write down."""
    return PlanningProblem(
        graph=graph,
        cluster=Cluster.flat(
            devices=devices, memory_bytes=memory, bandwidth_bytes_per_second=bandwidth
        ),
        microbatches=microbatches,
        **switches,
    )


def scaled(given: PlanningProblem, factor: float) -> PlanningProblem:
    """The problem with all times multiplied by a factor and the bandwidth divided by it."""
    layers = tuple(
        replace(
            layer,
            options=tuple(replace(o, seconds=o.seconds * factor) for o in layer.options),
        )
        for layer in given.graph.layers
    )
    bandwidth = given.cluster.slowest_link.bandwidth_bytes_per_second / factor
    return replace(
        given,
        graph=replace(given.graph, layers=layers),
        cluster=given.cluster.with_flat(bandwidth_bytes_per_second=bandwidth),
    )


def with_limit_of(given: PlanningProblem, result: PlanningResult) -> PlanningProblem:
    """The problem with a limit that the fullest stage of a plan hits exactly."""
    assert result.plan is not None
    prices = evaluate(given.graph, result.plan, given.cluster).stages
    limit = max(price.memory_bytes for price in prices)
    return replace(given, cluster=given.cluster.with_flat(memory_bytes=limit))


@st.composite
def problems(draw: st.DrawFn, *, most_layers: int = 6) -> PlanningProblem:
    """A small problem: any DAG, several options and degrees, tight or loose limits."""
    ids = draw(st.permutations(range(draw(st.integers(1, most_layers)))))
    amounts = draw(st.sampled_from((_TENTHS, _TENTHS, _TENTHS, _WILD)))
    ends = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    density = draw(st.sampled_from((0.3, 0.6, 1.0)))
    edges = [
        Edge(source=a, target=b, bytes=draw(amounts))
        for a, b in ends
        if draw(st.floats(0, 1)) < density
    ]
    uniform = draw(st.booleans())
    layers = [
        Layer(id=i, options=draw(_options(i, edges, amounts, uniform=uniform))) for i in sorted(ids)
    ]
    return problem(
        LayerGraph(layers=tuple(layers), edges=tuple(edges)),
        devices=draw(st.integers(1, 6)),
        memory=draw(st.sampled_from((4.0, 8.0, 12.3, 20.0, 1000.0))),
        bandwidth=draw(st.sampled_from((0.3, 1.0, 10.0))),
        microbatches=draw(st.sampled_from((1, 2, 4, 6))),
        data_parallel=draw(st.sampled_from((True, True, False))),
        recompute=draw(st.sampled_from((True, True, False))),
    )


@st.composite
def _options(
    draw: st.DrawFn,
    layer_id: int,
    edges: list[Edge],
    amounts: st.SearchStrategy[float],
    *,
    uniform: bool,
) -> tuple[Option, ...]:
    """Up to three options at each of some degrees; `uniform` ones synchronise and reduce alike."""
    before = [edge.source for edge in edges if edge.target == layer_id]
    after = [edge.target for edge in edges if edge.source == layer_id]

    def traffic() -> tuple[dict[int, float], dict[int, float], float]:
        return {i: draw(amounts) for i in before}, {i: draw(amounts) for i in after}, draw(amounts)

    options = []
    for degree in draw(st.sampled_from(((1,), (1,), (1, 2), (1, 2), (2,)))):
        alike = traffic()
        for number in range(draw(st.integers(1, 3))):
            receives, sends, parameters = alike if uniform else traffic()
            options.append(
                option(
                    f"option {number}",
                    tensor_parallel=degree,
                    seconds=draw(amounts),
                    parameters=parameters,
                    activations=draw(amounts) / 4,
                    fixed=draw(amounts) / 3,
                    recompute=number == 1,
                    receives=receives,
                    sends=sends,
                )
            )
    return tuple(options)
