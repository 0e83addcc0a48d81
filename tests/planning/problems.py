"""Small planning problems for the tests: drawn at random, or made by hand."""

from dataclasses import replace

from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.planning.evaluation.costs import Collective, CostModel
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import PIPELININGS
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
    """The problem in another unit of time, of which so many make one of the old."""

    def option_in(plain: Option) -> Option:
        names = ("seconds", "forward_seconds", "weight_backward_seconds", "update_seconds")
        parts = {name: getattr(plain, name) for name in names}
        return replace(
            plain,
            **{name: None if part is None else part * factor for name, part in parts.items()},
        )

    layers = tuple(
        replace(layer, options=tuple(map(option_in, layer.options))) for layer in given.graph.layers
    )
    cluster = with_links(given.cluster, bandwidth=1 / factor, latency=factor)
    return replace(given, graph=replace(given.graph, layers=layers), cluster=cluster)


def with_links(cluster: Cluster, *, bandwidth: float, latency: float = 1.0) -> Cluster:
    """The cluster with bandwidth and latency of all links multiplied."""

    def changed(link: Link) -> Link:
        return replace(
            link,
            bandwidth_bytes_per_second=link.bandwidth_bytes_per_second * bandwidth,
            latency_seconds=link.latency_seconds * latency,
        )

    groups = tuple(replace(group, link=changed(group.link)) for group in cluster.groups)
    return replace(cluster, groups=groups, link=changed(cluster.link))


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


@st.composite
def links(draw: st.DrawFn) -> Link:
    """A link, with and without latency."""
    return Link(
        bandwidth_bytes_per_second=draw(st.sampled_from((0.3, 1.0, 10.0))),
        latency_seconds=draw(st.sampled_from((0.0, 0.1))),
        duplex=draw(st.booleans()),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to eight devices in one or two groups of nodes."""
    shapes = draw(
        st.sampled_from(
            (
                ((1, 4),),
                ((2, 2),),
                ((2, 3),),
                ((2, 4),),
                ((3, 2),),
                ((1, 4), (1, 4)),
                ((1, 2), (2, 2)),
                ((2, 2), (1, 3)),
                ((2, 2), (1, 4)),
            )
        )
    )
    groups = [
        DeviceGroup(
            name=f"group {number}",
            nodes=nodes,
            devices_per_node=devices,
            memory_bytes=draw(st.sampled_from((8.0, 12.3, 20.0, 1000.0))),
            link=draw(links()),
            speed=draw(st.sampled_from((1.0, 2.0))),
        )
        for number, (nodes, devices) in enumerate(shapes)
    ]
    return Cluster(groups=tuple(groups), link=draw(links()))


@st.composite
def cost_models(draw: st.DrawFn) -> CostModel:
    """Any combination of what may count."""
    return CostModel(
        collective=draw(st.sampled_from(Collective)),
        shared_tensors_once=draw(st.booleans()),
        counts_latency=draw(st.booleans()),
        counts_buffers=draw(st.booleans()),
        temporary_once=draw(st.booleans()),
        reserve_bytes=draw(st.sampled_from((0.0, 1.5))),
    )


@st.composite
def detailed_problems(draw: st.DrawFn, *, most_layers: int = 4) -> PlanningProblem:
    """A small problem on nodes and links, with any costs and schedule, its memory by kind."""
    plain = draw(problems(most_layers=most_layers))
    layers = tuple(
        replace(layer, options=tuple(draw(_with_kinds(o)) for o in layer.options))
        for layer in plain.graph.layers
    )
    return replace(
        plain,
        graph=replace(plain.graph, layers=layers),
        cluster=draw(clusters()),
        microbatches=draw(st.sampled_from((1, 2, 4, 6, 8))),
        shard_optimizer=draw(st.booleans()),
        costs=draw(cost_models()),
        pipelining=draw(st.sampled_from(list(PIPELININGS.values()))),
    )


@st.composite
def _with_kinds(draw: st.DrawFn, plain: Option) -> Option:
    """The option with its fixed memory divided among kinds, and parts of its seconds."""
    amount = plain.fixed_bytes
    memory = draw(
        st.sampled_from(
            (
                FixedMemory(unspecified_bytes=amount),
                FixedMemory(parameters_bytes=amount, versions_bytes=amount),
                FixedMemory(optimizer_bytes=2 * amount, temporary_bytes=amount),
                FixedMemory(gradients_bytes=amount, optimizer_bytes=amount, versions_bytes=1.0),
            )
        )
    )
    deferred = draw(st.sampled_from((None, None, 0.25, 0.7)))
    return replace(
        plain,
        fixed_memory=memory,
        weight_backward_seconds=None if deferred is None else deferred * plain.seconds,
        forward_seconds=draw(st.sampled_from((None, plain.seconds / 4))),
    )
