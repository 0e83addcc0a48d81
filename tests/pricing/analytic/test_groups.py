"""Where the ranks of each group stand."""

import pytest

from diaulos.clusters.cluster import Cluster
from diaulos.clusters.expression import parse_cluster
from diaulos.errors import InputError
from diaulos.pricing.analytic.groups import Degrees, border_link, rank_groups

CLUSTER = parse_cluster("8x8xA100-80GB")


def test_tensor_parallel_ranks_share_a_node() -> None:
    """Tensor parallelism comes first, then context, then data parallelism."""
    found = rank_groups(CLUSTER, Degrees(tensor=4, context=2, data=8))
    assert (found.tensor.members, found.tensor.nodes) == (4, 1)
    assert (found.context.members, found.context.nodes) == (2, 1)
    assert (found.replicas.members, found.replicas.nodes) == (16, 8)


def test_replicas_of_experts_are_fewer() -> None:
    """With e ranks for experts, n/e of n replicas hold the same ones."""
    found = rank_groups(CLUSTER, Degrees(tensor=2, data=32, expert=8))
    assert found.expert.members == 8
    assert found.expert_replicas.members == 4
    assert found.replicas.members == 32


def test_borders_are_inside_nodes_where_they_can_be() -> None:
    """Two places of four ranks share a node; their next neighbours are in another one."""
    degrees = Degrees(tensor=4, pipeline=16)
    inside = CLUSTER.groups[0].link
    links = [border_link(CLUSTER, degrees, place) for place in range(16)]
    assert links == [inside if place % 2 == 0 else CLUSTER.link for place in range(16)]


def test_degrees_are_checked() -> None:
    """Experts need ranks of their own among the replicas."""
    with pytest.raises(InputError, match="expert-parallel degree is 3; it must divide"):
        Degrees(data=8, expert=3)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (parse_cluster("8xA100-80GB+8xH100-80GB"), "has 2 groups of devices"),
        (
            Cluster.flat(devices=8, memory_bytes=8e10, bandwidth_bytes_per_second=1e11),
            "does not say what its devices are",
        ),
    ],
)
def test_clusters_without_one_known_device_are_refused(cluster: Cluster, message: str) -> None:
    """An estimate needs to know its device."""
    with pytest.raises(InputError, match=message):
        rank_groups(cluster, Degrees(data=8))
