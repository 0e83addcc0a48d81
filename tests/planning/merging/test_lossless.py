"""Contraction keeps the least time: proven on small problems by trying every plan."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.models.graph import Edge, Layer, LayerGraph
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.evaluation.costs import DETAILED, PIPER, CostModel
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import PIPELININGS
from diaulos.planning.exact import exact
from diaulos.planning.merging.downset_count import count_downsets
from diaulos.planning.merging.lossless import contract, memory_never_binds
from diaulos.planning.problem import PlanningProblem
from tests.models.profiles import PROFILES, needs_profiles, profile
from tests.planning.problems import chain, option, problem, problems
from tests.planning.reference import label, needs_reference, piper_file, problem_of, rows
from tests.planning.wide_graphs import fan

SWITCHES = ("shared_tensors_once", "counts_latency", "counts_buffers", "temporary_once")
COSTS = [
    CostModel(**dict(zip(SWITCHES, values, strict=True)))
    for values in product((False, True), repeat=len(SWITCHES))
]


@st.composite
def layers_that_cost_little(draw: st.DrawFn) -> PlanningProblem:
    """Problems in which many layers take no time, some no memory either, and some are twins."""
    size = draw(st.integers(2, 5))
    ends = [(a, b) for a in range(size) for b in range(a + 1, size)]
    sizes = st.sampled_from((0.0, 1.0, 1.0, 2.0, 3.0))
    edges = {pair: draw(sizes) for pair in draw(st.lists(st.sampled_from(ends), unique=True))}
    layers = {i: draw(_options()) for i in range(size)}
    for twin in range(size, size + draw(st.integers(0, 2))):
        model = draw(st.integers(0, size - 1))
        layers[twin] = layers[model]
        edges |= {
            tuple(twin if end == model else end for end in pair): some
            for pair, some in edges.items()
            if model in pair
        }
    graph = LayerGraph(
        layers=tuple(Layer(id=i, options=some) for i, some in layers.items()),
        edges=tuple(Edge(source=a, target=b, bytes=some) for (a, b), some in edges.items()),
    )
    return PlanningProblem(
        graph=graph,
        cluster=Cluster.flat(
            devices=draw(st.integers(1, 4)),
            memory_bytes=draw(st.sampled_from((3.0, 8.0, 1000.0))),
            bandwidth_bytes_per_second=draw(st.sampled_from((0.5, 1.0, 10.0))),
            latency_seconds=draw(st.sampled_from((0.0, 0.3))),
        ),
        microbatches=draw(st.sampled_from((2, 4))),
        recompute=draw(st.booleans()),
        costs=draw(st.sampled_from(COSTS)),
        pipelining=draw(st.sampled_from(list(PIPELININGS.values()))),
    )


@st.composite
def _options(draw: st.DrawFn):
    seconds = draw(st.sampled_from((0.0, 0.0, 0.0, 1.0, 2.5)))
    held = draw(st.sampled_from((0.0, 0.0, 1.0)))
    parameters = draw(st.sampled_from((0.0, 1.0))) if seconds else 0.0
    plain = [
        option(
            tensor_parallel=degree,
            seconds=seconds / degree,
            activations=held,
            parameters=parameters,
        )
        for degree in draw(st.sampled_from(((1,), (1, 2))))
    ]
    again = [replace(o, name="again", recompute=True, seconds=o.seconds * 4 / 3) for o in plain]
    return tuple(plain + again if draw(st.booleans()) else plain)


@given(layers_that_cost_little())
def test_the_least_time_stays(given_problem: PlanningProblem) -> None:
    """Some plan of the contracted graph is as fast as the fastest of all, and is priced alike."""
    contraction = contract(given_problem)
    least = exhaustive(given_problem)
    contracted = exhaustive(replace(given_problem, graph=contraction.graph))
    assert (least.plan is None) == (contracted.plan is None)
    if least.evaluation and contracted.plan and contracted.evaluation:
        expanded = evaluate(
            given_problem.graph,
            contraction.expand(contracted.plan),
            given_problem.cluster,
            given_problem.costs,
            given_problem.pipelining,
        )
        seconds = least.evaluation.batch_seconds
        assert contracted.evaluation.batch_seconds == pytest.approx(seconds, rel=1e-12)
        assert expanded.batch_seconds == pytest.approx(seconds, rel=1e-12)


@given(layers_that_cost_little())
def test_the_order_of_twins_costs_nothing(given_problem: PlanningProblem) -> None:
    """Where empty messages are free, order edges may be edges, and the least time is the same."""
    costs = replace(given_problem.costs, counts_latency=False)
    without_latency = replace(given_problem, costs=costs)
    contraction = contract(without_latency)
    order = [Edge(source=a, target=b, bytes=0.0) for a, b in contraction.order_edges]
    ordered = replace(contraction.graph, edges=(*contraction.graph.edges, *order))
    least = exhaustive(without_latency).evaluation
    found = exhaustive(replace(without_latency, graph=ordered)).evaluation
    assert (least is None) == (found is None)
    if least and found:
        assert found.batch_seconds == pytest.approx(least.batch_seconds, rel=1e-12)


@given(problems())
def test_the_least_time_stays_where_layers_synchronise(given_problem: PlanningProblem) -> None:
    """Problems of all kinds keep their least time, or stay infeasible."""
    contraction = contract(given_problem)
    least = exhaustive(given_problem).evaluation
    found = exhaustive(replace(given_problem, graph=contraction.graph)).evaluation
    assert (least is None) == (found is None)
    if least and found:
        assert found.batch_seconds == pytest.approx(least.batch_seconds, rel=1e-12)


FREE = [option(seconds=0.0)]
COSTLY = [option(seconds=1.0, activations=1.0)]


def groups_of(given_problem: PlanningProblem) -> list[tuple[int, ...]]:
    return [group.layers for group in contract(given_problem).groups.values()]


def with_edges(layers: list[list], *edges: tuple[int, int, float]) -> LayerGraph:
    return LayerGraph(
        layers=tuple(Layer(id=i, options=tuple(some)) for i, some in enumerate(layers)),
        edges=tuple(Edge(source=a, target=b, bytes=some) for a, b, some in edges),
    )


def test_a_free_layer_goes_where_less_is_sent() -> None:
    """Between two layers it joins the one over the heavier edge; at an end it joins the other."""
    small_out = with_edges([COSTLY, FREE, COSTLY], (0, 1, 5.0), (1, 2, 3.0))
    small_in = with_edges([COSTLY, FREE, COSTLY], (0, 1, 3.0), (1, 2, 5.0))
    assert groups_of(problem(small_out)) == [(0, 1), (2,)]
    assert groups_of(problem(small_in)) == [(0,), (1, 2)]
    assert groups_of(problem(chain(FREE, COSTLY, FREE, bytes_between=2.0))) == [(0, 1, 2)]


def test_a_free_layer_that_sends_more_than_it_receives_stays() -> None:
    """With two consumers it sends twice what it receives; where tensors are shared, the same."""
    graph = with_edges([COSTLY, FREE, COSTLY, COSTLY], (0, 1, 5.0), (1, 2, 5.0), (1, 3, 5.0))
    assert groups_of(problem(graph)) == [(0,), (1,), (2,), (3,)]
    shared = replace(problem(graph), costs=DETAILED)
    assert groups_of(shared) == [(0, 1), (2,), (3,)]
    small = with_edges([COSTLY, FREE, COSTLY, COSTLY], (0, 1, 5.0), (1, 2, 2.0), (1, 3, 2.0))
    assert groups_of(problem(small)) == [(0, 1), (2,), (3,)]
    counted = replace(problem(small), costs=replace(PIPER, counts_latency=True))
    assert groups_of(counted) == [(0,), (1,), (2,), (3,)]


def test_a_sum_joins_what_follows_it_if_that_sends_no_more() -> None:
    """Cut after a free layer with two sources, one tensor crosses; cut before it, two do."""

    def joined(out_bytes: float) -> LayerGraph:
        edges = ((0, 2, 1.0), (1, 2, 1.0), (2, 3, out_bytes))
        return with_edges([COSTLY, COSTLY, FREE, COSTLY], *edges)

    assert groups_of(problem(joined(1.0))) == [(0,), (1,), (2,), (3,)]
    assert groups_of(problem(joined(2.0))) == [(0,), (1,), (2, 3)]
    counted = replace(problem(joined(2.0)), costs=DETAILED)
    assert groups_of(counted) == [(0,), (1,), (2,), (3,)]


def test_a_shared_tensor_is_not_joined_with_another() -> None:
    """A free layer stays where its neighbour's tensor is sent elsewhere too and counts once."""
    forked = with_edges([COSTLY, FREE, COSTLY], (0, 1, 5.0), (1, 2, 3.0), (0, 2, 5.0))
    assert groups_of(problem(forked)) == [(0, 1), (2,)]
    assert groups_of(replace(problem(forked), costs=DETAILED)) == [(0,), (1,), (2,)]
    rejoined = with_edges([COSTLY, FREE, COSTLY], (0, 1, 3.0), (1, 2, 5.0), (0, 2, 5.0))
    assert groups_of(problem(rejoined)) == [(0,), (1, 2)]
    assert groups_of(replace(problem(rejoined), costs=DETAILED)) == [(0,), (1,), (2,)]


def test_memory_decides_what_is_free() -> None:
    """A layer that holds memory is free only where all layers fit on one device together."""
    view = [option(seconds=0.0, activations=2.0)]
    graph = chain(COSTLY, view, COSTLY, bytes_between=1.0)
    tight, ample = (problem(graph, memory=memory, microbatches=2) for memory in (7.9, 8.0))
    assert not memory_never_binds(tight)
    assert memory_never_binds(ample)
    assert groups_of(tight) == [(0,), (1,), (2,)]
    assert groups_of(ample) == [(0, 1), (2,)]
    assert not memory_never_binds(replace(ample, costs=replace(PIPER, reserve_bytes=0.1)))
    assert not memory_never_binds(replace(ample, costs=replace(PIPER, counts_buffers=True)))


def test_a_free_layer_must_be_free_at_every_degree_of_its_neighbour() -> None:
    """One that cannot be split stays beside a layer that can, since it would bind it."""
    split = [option(), option(tensor_parallel=2, seconds=0.5)]
    assert groups_of(problem(chain(split, FREE), devices=2)) == [(0,), (1,)]
    both = [*FREE, option(tensor_parallel=2, seconds=0.0)]
    assert groups_of(problem(chain(split, both), devices=2)) == [(0, 1)]


def test_nodes_of_unequal_links_keep_their_layers() -> None:
    """There a stage of free layers may be worth having, as a relay between links."""
    fast, slow = (Link(bandwidth_bytes_per_second=rate) for rate in (10.0, 1.0))
    nodes = DeviceGroup(name="a", nodes=2, devices_per_node=2, memory_bytes=100.0, link=fast)
    cluster = Cluster(groups=(nodes,), link=slow)
    graph = chain(COSTLY, FREE, COSTLY, bytes_between=1.0)
    given_problem = replace(problem(graph), cluster=cluster)
    assert groups_of(given_problem) == [(0,), (1,), (2,)]


def test_twins_are_ordered() -> None:
    """Sixteen leaves alike make 18 downsets instead of 65,537; unlike ones stay as they are."""
    contraction = contract(problem(fan(16, alike=True)))
    assert count_downsets(contraction.graph, contraction.order_edges, most=100) == 18
    assert not contract(problem(fan(16, alike=False))).order_edges
    names = [[option("a")], [option("b")], [option("a")]]
    assert contract(problem(with_edges(names))).order_edges == ((0, 2),)


@needs_reference
def test_a_graph_beyond_reach_becomes_small() -> None:
    """Piper's GNMT has 17,914 downsets, nearly all for outputs without bytes, time and memory."""
    graph = piper_file("gnmt.json").graph
    contraction = contract(problem(graph, memory=8e9, bandwidth=25e9, devices=8, microbatches=256))
    assert count_downsets(graph, most=20_000) == 17_914
    assert count_downsets(contraction.graph, most=20_000) == 168


@needs_reference
@pytest.mark.parametrize(
    "row", [row for row in rows("gnmt.csv", most_devices=8) if row["piper_TPS"]], ids=label
)
def test_a_graph_beyond_reach_is_planned_exactly(row: dict[str, str]) -> None:
    """The contracted GNMT has the optimum that Piper's code needs two minutes for."""
    whole = problem_of(piper_file("gnmt.json"), row, 256)
    contraction = contract(whole)
    result = exact(replace(whole, graph=contraction.graph))
    assert result.plan is not None
    expanded = evaluate(whole.graph, contraction.expand(result.plan), whole.cluster)
    assert expanded.time_per_sample_seconds == pytest.approx(float(row["piper_TPS"]), rel=1e-12)


@needs_profiles
@pytest.mark.parametrize("name", PROFILES)
def test_published_profiles_are_small(name: str) -> None:
    """None of PipeDream's profiles has more than 250 downsets."""
    contraction = contract(problem(profile(name), memory=1e9, microbatches=64))
    assert count_downsets(contraction.graph, contraction.order_edges, most=250) is not None
