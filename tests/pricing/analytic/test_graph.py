"""A model on a cluster becomes a graph that the planner plans."""

import pytest

from diaulos.clusters.expression import parse_cluster
from diaulos.estimating.estimate import estimate
from diaulos.models.operations import Workload
from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.planners import plan
from diaulos.pricing.analytic.graph import Ways, priced_graph
from diaulos.pricing.analytic.options import LayerOptions, Recompute
from tests.estimating.models import configuration, published

CLUSTER = parse_cluster("1x8xH100-80GB")
WORKLOAD = Workload(microbatch_size=1, sequence_length=4096)


def test_options_are_those_of_estimates() -> None:
    """Seconds and bytes of all options of one way together are what an estimate says."""
    ways = Ways(tensor_parallel=(8,), base=LayerOptions(sequence_parallel=True))
    graph = priced_graph(published("llama-3-8b"), CLUSTER, WORKLOAD, ways)
    for way in Recompute:
        found = estimate(
            published("llama-3-8b"),
            CLUSTER,
            configuration(
                tensor=8, sequence_length=4096, sequence_parallel=True, recompute=way, batch_size=1
            ),
        )
        chosen = [
            next((o for o in layer.options if o.name == way.value), layer.options[0])
            for layer in graph.layers
        ]
        assert sum(o.seconds for o in chosen) == pytest.approx(found.stages[0].seconds.total)
        assert sum(o.activation_bytes for o in chosen) == pytest.approx(found.memory[0].activations)
        states = [o.fixed_memory.total_bytes - o.fixed_memory.versions_bytes for o in chosen]
        temporary = sum(o.fixed_memory.temporary_bytes for o in chosen)
        assert sum(states) - temporary == pytest.approx(found.stages[0].state.total)


def test_borders_carry_the_share_of_a_device() -> None:
    """Whatever the degree t, bytes of an edge and of synchronisation are 1/t of the tensor."""
    graph = priced_graph(
        published("llama-3-8b"), CLUSTER, WORKLOAD, Ways(tensor_parallel=(1, 2, 8))
    )
    whole = 4096 * 4096 * 2
    (edge,) = [edge for edge in graph.edges if edge.source == 3]
    for option in graph.layers[3].options:
        sent = edge.bytes + option.output_sync_bytes[4]
        received = edge.bytes + option.input_sync_bytes[2]
        assert sent == received == pytest.approx(whole / option.tensor_parallel)


def test_degrees_that_do_not_fit_are_left_out() -> None:
    """Degrees that do not divide the heads, or exceed a node, are not offered."""
    ways = Ways(tensor_parallel=(1, 3, 4, 8, 16))
    graph = priced_graph(published("qwen2-7b"), CLUSTER, WORKLOAD, ways)
    assert graph.tensor_parallel_degrees == (1, 4)


def test_the_graph_can_be_planned() -> None:
    """The exact planner finds a plan of Llama 3 with 8 B on eight devices."""
    graph = priced_graph(
        published("llama-3-8b"), CLUSTER, WORKLOAD, Ways(tensor_parallel=(1, 2, 4, 8))
    )
    found = plan(graph, CLUSTER, microbatches=64, pipelining=ONE_F_ONE_B)
    assert found.devices_used == 8
