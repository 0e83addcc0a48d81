"""Plans: the costs of their stages, and their timelines."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup
from diaulos.clusters.cluster import Link as ClusterLink
from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.planning.evaluation.costs import PIPER
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import PIPELININGS, Pipelining
from diaulos.planning.plan import Plan, Stage
from diaulos.schedules.costs import message_bytes
from diaulos.schedules.plans import plan_costs, plan_links, plan_simulator, simulate_plan
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.timeline import Timeline


def spans(timeline: Timeline) -> dict[str, tuple[float, float]]:
    """Start and end by the text of the action, its version left out."""
    return {
        str(event.action).partition("@")[0]: (event.start_seconds, event.end_seconds)
        for event in timeline.events
    }


def option(seconds: float, *, forward: float | None = None) -> Option:
    return Option(
        name="plain",
        seconds=seconds,
        forward_seconds=forward,
        update_seconds=0.5,
        parameter_bytes=40,
        activation_bytes=3,
        fixed_memory=FixedMemory(parameters_bytes=40, optimizer_bytes=80),
    )


GRAPH = LayerGraph(
    layers=(
        Layer(id=0, options=(option(3),)),
        Layer(id=1, options=(option(6, forward=1),)),
        Layer(id=2, options=(option(9),)),
    ),
    edges=(
        Edge(source=0, target=1, bytes=8),
        Edge(source=1, target=2, bytes=16),
        Edge(source=0, target=2, bytes=32),
    ),
)
CLUSTER = Cluster.flat(
    devices=4, memory_bytes=1e9, bandwidth_bytes_per_second=16, latency_seconds=0.25
)


def planned(*stages: tuple[tuple[int, ...], int], microbatches: int = 4) -> Plan:
    return Plan(
        stages=tuple(
            Stage(
                layers=layers,
                data_parallel=degree,
                tensor_parallel=1,
                options=dict.fromkeys(layers, "plain"),
            )
            for layers, degree in stages
        ),
        microbatches=microbatches,
    )


def test_the_costs_of_a_plan_are_those_of_its_layers() -> None:
    """Times, bytes and the ring; a backward that was not measured counts as twice the forward."""
    first, second = plan_costs(GRAPH, planned(((0, 1), 2), ((2,), 1)), CLUSTER)
    assert (first.forward_seconds, first.backward_seconds) == (2.0, 7.0)
    assert (second.forward_seconds, second.backward_seconds) == (3.0, 6.0)
    assert (first.update_seconds, second.update_seconds) == (1.0, 0.5)
    assert first.reduce_seconds == 2 * (2 - 1) * (80 / 2 / 16 + 0.25)
    assert second.reduce_seconds == 0.0
    assert (first.activation_bytes, first.fixed_bytes) == (6.0, 240.0)
    assert (first.output_bytes, second.output_bytes) == (48.0, 0.0)


def test_tensors_that_skip_a_stage_pass_through_it() -> None:
    """A stage hands on what later stages need, whoever made it."""
    costs = plan_costs(GRAPH, planned(((0,), 1), ((1,), 1), ((2,), 1)), CLUSTER)
    assert [cost.output_bytes for cost in costs] == [40.0, 48.0, 0.0]


def test_a_plan_is_simulated_on_its_cluster() -> None:
    """The link's latency and bandwidth are the cluster's; the schedule is checked first."""
    plan = planned(((0, 1), 1), ((2,), 1), microbatches=1)
    timeline = simulate_plan(GRAPH, plan, CLUSTER, schedule="gpipe", batches=1)
    found = spans(timeline)
    assert found["1F0"] == (2 + 3 + 0.25, 2 + 3 + 0.25 + 3)
    assert found["0B0"][0] == found["1B0"][1] + 3 + 0.25
    three = planned(((0,), 1), ((1,), 1), ((2,), 1), microbatches=1)
    with pytest.raises(InputError, match="2BW needs depth - 1"):
        simulate_plan(GRAPH, three, CLUSTER, schedule="2bw", batches=1)


def test_versions_are_counted_by_the_schedule() -> None:
    """What one more version adds is held once more under 2BW, and not with a flush."""
    memory = FixedMemory(parameters_bytes=40, optimizer_bytes=80, versions_bytes=60)
    layer = Layer(
        id=0,
        options=(
            Option(
                name="plain", seconds=3, parameter_bytes=40, activation_bytes=3, fixed_memory=memory
            ),
        ),
    )
    graph, plan = LayerGraph(layers=(layer,), edges=()), planned(((0,), 1), microbatches=2)
    peaks = {
        name: simulate_plan(graph, plan, CLUSTER, schedule=name, batches=3).peak_memory(0)
        for name in ("1f1b", "2bw")
    }
    assert {name: peak.versions_bytes for name, peak in peaks.items()} == {"1f1b": 0, "2bw": 60}
    assert {peak.fixed_bytes for peak in peaks.values()} == {120}


def test_halves_of_backwards_are_those_of_the_layers() -> None:
    """As measured; half of what recomputation leaves of the backward where they are not."""
    measured = Option(
        name="measured", seconds=9, forward_seconds=3, weight_backward_seconds=2,
        parameter_bytes=1, activation_bytes=1,
    )  # fmt: skip
    recomputed = Option(
        name="recomputed", seconds=8, recompute=True, parameter_bytes=1, activation_bytes=1
    )
    layers = (Layer(id=0, options=(measured,)), Layer(id=1, options=(recomputed,)))
    graph = LayerGraph(layers=layers, edges=(Edge(source=0, target=1, bytes=1),))
    stage = Stage(
        layers=(0, 1),
        data_parallel=1,
        tensor_parallel=1,
        options={0: "measured", 1: "recomputed"},
    )
    (cost,) = plan_costs(graph, Plan(stages=(stage,), microbatches=1), CLUSTER)
    assert (cost.forward_seconds, cost.backward_seconds) == (3 + 2, 6 + 6)
    assert (cost.weight_seconds, cost.input_seconds) == (2 + 2, 4 + 4)


NODES = Cluster(
    groups=(
        DeviceGroup(
            name="slow", nodes=1, devices_per_node=2, memory_bytes=1e9,
            link=ClusterLink(bandwidth_bytes_per_second=100),
        ),
        DeviceGroup(
            name="fast", nodes=1, devices_per_node=2, memory_bytes=1e9, speed=2.0,
            link=ClusterLink(bandwidth_bytes_per_second=200, latency_seconds=1),
        ),
    ),
    link=ClusterLink(bandwidth_bytes_per_second=10, latency_seconds=3),
)  # fmt: skip


def test_stages_take_what_their_devices_and_links_give() -> None:
    """Two slow devices of a node, then a stage of two fast ones of another."""
    plan = planned(((0,), 1), ((1,), 1), ((2,), 2))
    links = plan_links(plan, NODES)
    assert [link.bandwidth_bytes_per_second for link in links] == [100, 10]
    assert [link.latency_seconds for link in links] == [0, 3]
    costs = plan_costs(GRAPH, plan, NODES)
    assert [cost.forward_seconds for cost in costs] == [1.0, 1.0, 3 / 2]
    assert [cost.update_seconds for cost in costs] == [0.5, 0.5, 0.25]
    assert [cost.reduce_seconds for cost in costs] == [0, 0, 2 * (40 / 2 / 200 + 1)]


def test_a_sharded_optimizer_is_shared_by_the_replicas() -> None:
    """Its memory and its seconds are those of one part."""
    (whole,) = plan_costs(GRAPH, planned(((0, 1, 2), 2)), CLUSTER)
    plan = planned(((0, 1, 2), 2))
    sharded = replace(plan, stages=(replace(plan.stages[0], sharded_optimizer=True),))
    (cost,) = plan_costs(GRAPH, sharded, CLUSTER)
    assert whole.fixed_bytes - cost.fixed_bytes == 3 * 80 / 2
    assert cost.update_seconds == whole.update_seconds / 2


def test_plans_of_one_shape_share_a_simulator() -> None:
    """The schedule is generated and checked once."""
    shape = PipelineShape(replicas=(1, 2, 1), microbatches=4)
    first = plan_simulator("1f1b", shape, 1)
    assert plan_simulator("1f1b", PipelineShape(replicas=(1, 2, 1), microbatches=4), 1) is first
    costs = plan_costs(GRAPH, planned(((0,), 1), ((1,), 2), ((2,), 1)), CLUSTER)
    plan = planned(((0,), 1), ((1,), 2), ((2,), 1))
    assert first.makespan_seconds(costs, plan_links(plan, CLUSTER)) > 0


@pytest.mark.parametrize("pipelining", PIPELININGS.values(), ids=PIPELININGS)
@pytest.mark.parametrize("degrees", [(1, 1, 1), (2, 2), (1, 2, 4), (4, 1, 2)])
def test_stages_hold_what_planning_counts(pipelining: Pipelining, degrees: tuple[int, ...]) -> None:
    """The limits that a schedule promises are the microbatches in flight of the memory account."""
    shape = PipelineShape(replicas=degrees, microbatches=16)
    promised = plan_simulator(pipelining.name, shape, 2).schedule.in_flight_limits
    counted = [
        pipelining.in_flight(total, d, 16)
        for total, d in zip(pipelining.totals(degrees), degrees, strict=True)
    ]
    assert list(promised) == counted


def test_messages_carry_what_both_sides_synchronise() -> None:
    """What the options at a border synchronise over its edges, each side its own; as evaluated."""
    gathers = replace(option(3), output_sync_bytes={1: 4, 2: 64})
    scatters = replace(option(6), input_sync_bytes={0: 2}, output_sync_bytes={2: 128})
    layers = (Layer(id=0, options=(gathers,)), Layer(id=1, options=(scatters,)), GRAPH.layers[2])
    graph = replace(GRAPH, layers=layers)
    whole = planned(((0, 1), 1), ((2,), 1), microbatches=1)
    costs = plan_costs(graph, whole, CLUSTER)
    assert [message_bytes(costs, border) for border in range(1)] == [16 + 32 + 64 + 128]
    cut = planned(((0,), 1), ((1,), 1), ((2,), 1), microbatches=1)
    costs = plan_costs(graph, cut, CLUSTER)
    assert [message_bytes(costs, border) for border in range(2)] == [40 + 68 + 2, 48 + 128]
    timeline = simulate_plan(graph, whole, CLUSTER, schedule="gpipe", batches=1)
    sender = evaluate(graph, whole, CLUSTER, PIPER).stages[0]
    assert spans(timeline)["1F0"][0] - spans(timeline)["0F0"][1] == pytest.approx(240 / 16 + 0.25)
    assert sender.communication_seconds == 2 * 240 / 16
