"""PipeDream's planner finds what its published code finds, and plans that hold here."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.baselines.pipedream import Pipeline, pipedream, pipedream_pipeline
from diaulos.planning.baselines.pipedream_states import pipedream_states
from diaulos.planning.evaluation.costs import DETAILED
from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.problem import PlanningProblem
from tests.models.profiles import needs_profiles, profile
from tests.planning.problems import chain, option, problem, problems
from tests.planning.wide_graphs import cells, fan, graph_of

ANY_DEGREE = 840
"""Microbatches that all degrees up to 8 divide."""


def published(name: str, devices: int) -> Pipeline:
    found = pipedream_pipeline(
        problem(profile(name), devices=devices, memory=1e18, bandwidth=1e9, microbatches=ANY_DEGREE)
    )
    assert found is not None
    return found


@needs_profiles
@pytest.mark.parametrize(
    ("name", "devices", "seconds", "stages"),
    [
        ("vgg16", 2, 0.411041792, [(10, 1), (30, 1)]),
        ("vgg16", 4, 0.205520896, [(17, 3), (23, 1)]),
        ("vgg16", 8, 0.10383317028571429, [(24, 7), (16, 1)]),
        ("alexnet", 4, 0.03421714133333333, [(13, 3), (9, 1)]),
        ("alexnet", 8, 0.018874368, [(13, 7), (9, 1)]),
        ("resnet18", 4, 0.100004036, [(70, 4)]),
        ("resnet18", 8, 0.05078332704, [(49, 5), (21, 3)]),
        ("squeezenet1_0", 4, 0.074414, [(41, 3), (26, 1)]),
        ("resnet50", 4, 0.162880924, [(94, 2), (82, 2)]),
    ],
)
def test_published_answers(
    name: str, devices: int, seconds: float, stages: list[tuple[int, int]]
) -> None:
    """Layers and replicas of each stage at 1 GB/s, and the time, are those of PipeDream's code."""
    found = published(name, devices)
    assert found.seconds == pytest.approx(seconds, rel=1e-12)
    assert [(len(stage.layers), stage.replicas) for stage in found.stages] == stages


@needs_profiles
def test_published_answer_for_gnmt() -> None:
    """A straight pipeline of four stages, 3.46 times as fast as one device, from 99 states."""
    found = published("gnmt", 4)
    assert [stage.replicas for stage in found.stages] == [1, 1, 1, 1]
    assert found.seconds == pytest.approx(0.025868, rel=1e-12)
    total = math.fsum(layer.options[0].seconds for layer in profile("gnmt").layers)
    assert round(total / found.seconds, 2) == 3.46
    assert len(pipedream_states(profile("gnmt"))) == 99 + 1


@needs_profiles
def test_a_tensor_is_counted_once_at_a_cut() -> None:
    """The published code counts one again beside a branch, and finds 0.285058 s here."""
    assert published("resnet50", 2).seconds == pytest.approx(0.276674, rel=1e-12)


Cost = Callable[[int, int, int], float]


def least_seconds(
    graph: LayerGraph, first: Cost, later: Cost, *, machines: int, begin: int, end: int
) -> float:
    """The least time of a chain's layers begin..end on all machines, by trying every way."""
    ways = [first(begin, end, machines)]
    for cut, replicas in product(range(begin + 1, end), range(1, machines)):
        before = least_seconds(
            graph, first, later, machines=machines - replicas, begin=begin, end=cut
        )
        ways.append(max(before, later(cut, end, replicas)))
    return min(ways)


def costs_of(
    graph: LayerGraph, seconds: Callable[[int, int], float], bandwidth: float, below: int
) -> tuple[Cost, Cost]:
    """What a first and a later stage of a chain cost, from the definition."""

    def reduction(begin: int, end: int, m: int) -> float:
        weights = sum(layer.options[0].parameter_bytes for layer in graph.layers[begin:end])
        return 4 * (m - 1) * weights / (m * bandwidth)

    def first(begin: int, end: int, m: int) -> float:
        return (seconds(begin, end) + reduction(begin, end, m) / below) / m

    def later(begin: int, end: int, m: int) -> float:
        sizes = [graph.edges[begin - 1].bytes]
        sizes += [graph.edges[end - 1].bytes] if end < len(graph.layers) else []
        borders = [2 * size / (m * bandwidth) for size in sizes]
        return max((seconds(begin, end) + reduction(begin, end, m)) / m, *borders)

    return first, later


@st.composite
def chains(draw: st.DrawFn) -> LayerGraph:
    """Three to five layers in a row."""
    amounts = st.integers(1, 40).map(float)
    layers = [
        [option(seconds=draw(amounts), parameters=draw(amounts))]
        for _ in range(draw(st.integers(3, 5)))
    ]
    graph = chain(*layers)
    return replace(graph, edges=tuple(replace(e, bytes=draw(amounts)) for e in graph.edges))


@given(chains(), st.integers(1, 4), st.sampled_from((1.0, 3.0, 20.0)))
def test_the_time_is_the_least_on_equal_links(
    graph: LayerGraph, devices: int, bandwidth: float
) -> None:
    """No way to cut a chain and replicate its stages is faster by PipeDream's model."""
    given_problem = problem(graph, devices=devices, bandwidth=bandwidth, microbatches=ANY_DEGREE)
    found = pipedream_pipeline(given_problem)
    assert found is not None

    def seconds(begin: int, end: int) -> float:
        return sum(layer.options[0].seconds for layer in graph.layers[begin:end])

    first, later = costs_of(graph, seconds, bandwidth, below=1)
    least = least_seconds(graph, first, later, machines=devices, begin=0, end=len(graph.layers))
    assert found.seconds == pytest.approx(least, rel=1e-12)


def nodes_of(count: int, devices: int, *, inside: float, between: float) -> Cluster:
    group = DeviceGroup(
        name="all",
        nodes=count,
        devices_per_node=devices,
        memory_bytes=1e18,
        link=Link(bandwidth_bytes_per_second=inside),
    )
    return Cluster(groups=(group,), link=Link(bandwidth_bytes_per_second=between))


@given(chains(), st.integers(2, 3), st.integers(1, 3))
def test_the_time_is_the_least_on_nodes(graph: LayerGraph, nodes: int, devices: int) -> None:
    """On nodes, stages of nodes are cut again; their best times are those of the stages."""
    cluster = nodes_of(nodes, devices, inside=10.0, between=2.0)
    found = pipedream_pipeline(
        PlanningProblem(graph=graph, cluster=cluster, microbatches=ANY_DEGREE)
    )
    assert found is not None

    def on_device(begin: int, end: int) -> float:
        return sum(layer.options[0].seconds for layer in graph.layers[begin:end])

    inner = costs_of(graph, on_device, 10.0, below=1)

    def on_node(begin: int, end: int) -> float:
        return least_seconds(graph, *inner, machines=devices, begin=begin, end=end)

    outer = costs_of(graph, on_node, 2.0, below=devices)
    least = least_seconds(graph, *outer, machines=nodes, begin=0, end=len(graph.layers))
    assert found.seconds == pytest.approx(least, rel=1e-12)


def has_plain_options(given_problem: PlanningProblem) -> bool:
    return all(
        any(not option.recompute for option in given_problem.options(layer, 1))
        for layer in given_problem.graph.layers
    )


@given(problems(), st.sampled_from(("piper", "detailed", "flush")))
def test_plans_hold(given_problem: PlanningProblem, kind: str) -> None:
    """Plans keep every rule and are no faster than the fastest; refusals are of what it cannot."""
    if kind == "detailed":
        given_problem = replace(given_problem, costs=DETAILED)
    if kind == "flush":
        given_problem = replace(given_problem, pipelining=ONE_F_ONE_B)
    if not has_plain_options(given_problem):
        with pytest.raises(InputError, match="has no option without recomputation"):
            pipedream(given_problem)
        return
    result = pipedream(given_problem)
    assert not result.proven_optimal
    if result.plan is None or result.evaluation is None:
        assert "the pipedream planner found no plan" in str(result.reason)
        return
    rules = (given_problem.cluster, given_problem.costs, given_problem.pipelining)
    assert violations(given_problem.graph, result.plan, *rules) == ()
    best = exhaustive(given_problem).evaluation
    assert best is not None
    assert result.evaluation.batch_seconds >= best.batch_seconds * (1 - 1e-12)


def test_memory_is_kept() -> None:
    """Where the fastest pipeline does not fit, one that does is found."""
    layers = [[option(seconds=1.0, parameters=9.0, activations=4.0, fixed=1.0)] for _ in range(4)]
    graph = chain(*layers, bytes_between=1.0)

    def stages(memory: float) -> list[int]:
        result = pipedream(problem(graph, devices=2, memory=memory, bandwidth=1e3, microbatches=2))
        return [len(stage.layers) for stage in result.plan.stages] if result.plan else []

    assert stages(20.0) == [2, 2]
    assert stages(18.0) == [2, 2]
    assert stages(17.0) == [1, 3]
    assert stages(14.9) == []


def test_all_devices_are_used_that_degrees_allow() -> None:
    """With 4 microbatches a lone layer can have 4 replicas, not 6; without replicas, one."""
    lone = problem(chain([option()]), devices=6, microbatches=4)
    result = pipedream(lone)
    assert result.plan is not None
    assert result.plan.devices_used == 4
    straight = pipedream(replace(lone, data_parallel=False))
    assert straight.plan is not None
    assert straight.plan.devices_used == 1


def test_degrees_of_nodes_are_rounded_to_what_a_plan_allows() -> None:
    """Four replicas on each of four nodes are sixteen, of which ten divide twenty microbatches."""
    cluster = nodes_of(4, 4, inside=1e9, between=1e9)
    lone = PlanningProblem(graph=chain([option()]), cluster=cluster, microbatches=20)
    found, result = pipedream_pipeline(lone), pipedream(lone)
    assert found is not None
    assert [stage.replicas for stage in found.stages] == [16]
    assert result.plan is not None
    assert result.plan.stages[0].data_parallel == 10


def test_unlike_devices_are_refused() -> None:
    """PipeDream knows one kind of device."""
    cluster = nodes_of(1, 1, inside=1.0, between=1.0)
    other = replace(cluster.groups[0], name="other")
    unlike = replace(cluster, groups=(*cluster.groups, other))
    with pytest.raises(InputError, match="2 groups of devices; the pipedream planner knows equal"):
        pipedream(PlanningProblem(graph=chain([option()]), cluster=unlike, microbatches=1))


def test_layers_that_nothing_else_needs_are_states_too() -> None:
    """Two chains apart have all pairs of beginnings; a side input has no states of its own."""
    apart = graph_of([1.0] * 4, [(0, 1), (2, 3)])
    assert len(pipedream_states(apart)) == 9
    side_input = graph_of([1.0] * 4, [(0, 1), (2, 3), (3, 1)])
    assert len(pipedream_states(side_input)) == 3


def test_wide_graphs_are_planned_too() -> None:
    """A fan of 40 leaves and cells of many branches are ordered until they can be held."""
    for graph in (fan(40, alike=False), cells(4)):
        states = pipedream_states(graph)
        assert len(states) <= 1500
        assert states.members[-1].all()
        assert not states.members[0].any()
