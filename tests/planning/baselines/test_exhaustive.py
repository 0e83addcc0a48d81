"""The exhaustive planner is checked by hand, since it judges the others."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.models.graph import Layer, LayerGraph
from diaulos.planning.baselines.exhaustive import _Enumeration, exhaustive
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import GPIPE, ONE_F_ONE_B
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, detailed_problems, option, problem


def test_a_plan_by_hand() -> None:
    """Two layers, two devices: replicas beat a cut when the edge is dear, and not otherwise."""
    layers = [option(seconds=2.0, parameters=0.5)], [option(seconds=2.0, parameters=0.5)]
    cheap = exhaustive(problem(chain(*layers), devices=2, microbatches=2))
    assert cheap.plan is not None
    assert cheap.evaluation is not None
    # One of two replicas takes 4/2 s and 1 s more to reduce its share of 1 byte, 4/2/2.
    assert [stage.layers for stage in cheap.plan.stages] == [(0,), (1,)]
    assert cheap.evaluation.time_per_sample_seconds == 2.0
    dear = exhaustive(
        problem(chain(*layers, bytes_between=1.5), devices=2, microbatches=2, bandwidth=1.0)
    )
    assert dear.plan is not None
    assert dear.evaluation is not None
    assert [stage.data_parallel for stage in dear.plan.stages] == [2]
    assert dear.evaluation.time_per_sample_seconds == 3.0


def test_memory_forces_a_cut() -> None:
    """A stage that does not fit is no candidate, and lean options are taken where they must."""
    fat, lean = option(activations=6.0), option("lean", seconds=1.5, activations=2.0)
    result = exhaustive(problem(chain(*[[fat, lean]] * 3), devices=2, memory=10.0, microbatches=3))
    assert result.plan is not None
    assert [dict(stage.options) for stage in result.plan.stages] == [
        {0: "lean"},
        {1: "plain", 2: "lean"},
    ]


def test_no_plan() -> None:
    """Where nothing fits the answer is proven, and says which layer does not fit."""
    result = exhaustive(problem(chain([option(fixed=11.0)]), memory=10.0))
    assert result.plan is None
    assert result.evaluation is None
    assert result.proven_optimal
    assert result.reason is not None
    assert result.reason.startswith("layer 0 needs at least 11 B")


def test_large_graphs_are_refused() -> None:
    """More than ten layers are refused, and so are too many plans of fewer."""
    with pytest.raises(InputError, match=r"the graph has 11 layers.*use the exact planner"):
        exhaustive(problem(chain(*[[option()]] * 11)))
    free = LayerGraph(layers=tuple(Layer(id=i, options=(option(),)) for i in range(10)))
    with pytest.raises(InputError, match="too many plans"):
        exhaustive(problem(free, devices=10, microbatches=10))


def line_of(*shapes: tuple[int, int], memory: float = 1e9, speed: float = 1.0) -> Cluster:
    """Groups of (nodes, devices each), fast inside nodes and slow between them."""
    groups = tuple(
        DeviceGroup(
            name=f"group {number}",
            nodes=nodes,
            devices_per_node=devices,
            memory_bytes=memory,
            link=Link(bandwidth_bytes_per_second=10.0),
            speed=speed if number else 1.0,
        )
        for number, (nodes, devices) in enumerate(shapes)
    )
    return Cluster(groups=groups, link=Link(bandwidth_bytes_per_second=1.0))


def test_replicas_stay_in_a_node_where_reduction_is_dear() -> None:
    """Two nodes of two: a cut between the nodes, and replicas inside each."""
    layers = [option(seconds=4.0, parameters=4.0)], [option(seconds=4.0, parameters=4.0)]
    given_problem = replace(
        problem(chain(*layers, bytes_between=0.1), microbatches=4), cluster=line_of((2, 2))
    )
    found = exhaustive(given_problem)
    assert found.plan is not None
    assert found.evaluation is not None
    assert [(s.layers, s.data_parallel, s.first_device) for s in found.plan.stages] == [
        ((0,), 2, 0),
        ((1,), 2, 2),
    ]
    # 4/2 s, 2*0.1/2 bytes over the slow link, 4*4/2/4 bytes over the fast one.
    assert found.evaluation.time_per_sample_seconds == pytest.approx(2 + 0.1 + 0.2)


def test_the_heavy_layer_stands_on_the_fast_devices() -> None:
    """On a slow and a twice as fast device, the cut is where both are busy alike."""
    layers = [[option(seconds=1.0)]] * 3
    given_problem = replace(
        problem(chain(*layers), microbatches=1), cluster=line_of((1, 1), (1, 1), speed=2.0)
    )
    found = exhaustive(replace(given_problem, data_parallel=False))
    assert found.plan is not None
    assert found.evaluation is not None
    # One microbatch allows one replica in all; so one stage, on the fast device.
    assert [(s.layers, s.first_device) for s in found.plan.stages] == [((0, 1, 2), 1)]
    found = exhaustive(replace(given_problem, microbatches=2, data_parallel=False))
    assert found.plan is not None
    assert [(s.layers, s.first_device) for s in found.plan.stages] == [((0,), 0), ((1, 2), 1)]


def test_a_stage_leaves_devices_idle_to_keep_its_shards_together() -> None:
    """On nodes of two, a stage of one device stands last and its node's other device is idle."""
    layers = [option(tensor_parallel=2, seconds=1.0)], [option(seconds=1.0)]
    given_problem = replace(
        problem(chain(*layers), microbatches=2, data_parallel=False), cluster=line_of((2, 2))
    )
    found = exhaustive(given_problem)
    assert found.plan is not None
    assert [s.first_device for s in found.plan.stages] == [0, 3]


def test_a_flush_favours_fewer_stages() -> None:
    """Two stages of 1 s run 2 microbatches in 3 s with a flush and in 2 s without one."""
    given_problem = problem(
        chain([option(seconds=1.0)], [option(seconds=1.0)]),
        devices=2,
        microbatches=2,
        data_parallel=False,
    )
    for pipelining, seconds in ((given_problem.pipelining, 2.0), (ONE_F_ONE_B, 3.0)):
        found = exhaustive(replace(given_problem, pipelining=pipelining))
        assert found.plan is not None
        assert found.evaluation is not None
        assert len(found.plan.stages) == 2
        assert found.evaluation.batch_seconds == seconds
    alone = exhaustive(replace(given_problem, pipelining=GPIPE, microbatches=1))
    assert alone.plan is not None
    assert len(alone.plan.stages) == 1


def test_sharding_the_optimizer_makes_room() -> None:
    """Two replicas that each hold half of the optimizer's state fit where whole ones do not."""
    heavy = option(seconds=2.0)
    heavy = replace(heavy, fixed_memory=replace(heavy.fixed_memory, optimizer_bytes=6.0))
    given_problem = problem(chain([heavy]), devices=2, memory=4.0, microbatches=2)
    assert exhaustive(given_problem).plan is None
    found = exhaustive(replace(given_problem, shard_optimizer=True))
    assert found.plan is not None
    assert found.plan.stages[0].sharded_optimizer
    assert found.evaluation is not None
    assert found.evaluation.stages[0].memory_bytes == 3.0


@settings(max_examples=100)
@given(detailed_problems())
def test_prices_agree_with_the_evaluation(given_problem: PlanningProblem) -> None:
    """The time that the enumeration computes for its best plan is the one that `evaluate` gives."""
    search = _Enumeration(given_problem)
    plan = search.best()
    if plan is not None:
        context = (given_problem.cluster, given_problem.costs, given_problem.pipelining)
        price = evaluate(given_problem.graph, plan, *context)
        assert search.fastest_seconds == pytest.approx(price.batch_seconds, rel=1e-11)
        assert violations(given_problem.graph, plan, *context) == ()


@st.composite
def some_plan(draw: st.DrawFn, given_problem: PlanningProblem) -> Plan | None:
    """Stages drawn without regard to cost, on places that may or may not be allowed."""
    order = given_problem.graph.topological_order
    stages = []
    start = device = 0
    while start < len(order):
        end = draw(st.integers(start + 1, len(order)))
        t = draw(st.sampled_from(given_problem.tensor_degrees or (1,)))
        layers = [given_problem.graph.layer(i) for i in order[start:end]]
        options = {layer.id: given_problem.options(layer, t) for layer in layers}
        if not all(options.values()):
            return None
        d = draw(st.sampled_from(given_problem.data_degrees))
        device += draw(st.integers(0, 1))
        stages.append(
            Stage(
                layers=tuple(options),
                data_parallel=d,
                tensor_parallel=t,
                options={i: draw(st.sampled_from(some)).name for i, some in options.items()},
                sharded_optimizer=given_problem.shard_optimizer and draw(st.booleans()),
                first_device=device,
            )
        )
        device += d * t
        start = end
    return Plan(stages=tuple(stages), microbatches=given_problem.microbatches)


@settings(max_examples=150)
@given(st.data())
def test_no_valid_plan_is_better(data: st.DataObject) -> None:
    """Plans drawn at random that break no rule are never faster, on any cluster and costs."""
    given_problem = data.draw(detailed_problems(most_layers=3))
    found = exhaustive(given_problem)
    context = (given_problem.cluster, given_problem.costs, given_problem.pipelining)
    for _ in range(5):
        plan = data.draw(some_plan(given_problem))
        if plan is None or violations(given_problem.graph, plan, *context):
            continue
        price = evaluate(given_problem.graph, plan, *context)
        assert found.evaluation is not None
        assert found.evaluation.batch_seconds <= price.batch_seconds * (1 + 1e-12)
