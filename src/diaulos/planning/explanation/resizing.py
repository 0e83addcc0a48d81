"""Clusters with more or less of what they have: for asking what else would do."""

from dataclasses import replace

from diaulos.clusters.cluster import Cluster
from diaulos.planning.problem import PlanningProblem


def with_memory(cluster: Cluster, memory_bytes: float) -> Cluster:
    """A cluster of one group of devices with other memory on each of them."""
    (group,) = cluster.groups
    return replace(cluster, groups=(replace(group, memory_bytes=memory_bytes),))


def with_devices(cluster: Cluster, devices: int) -> Cluster:
    """A cluster of one group with so many devices: on one node if it is flat, else whole nodes."""
    (group,) = cluster.groups
    if cluster.is_flat:
        return replace(cluster, groups=(replace(group, devices_per_node=devices),))
    nodes = devices // group.devices_per_node
    return replace(cluster, groups=(replace(group, nodes=nodes),))


def device_unit(cluster: Cluster) -> int:
    """By how many devices a cluster of one group grows: one if it is flat, else a node's."""
    return 1 if cluster.is_flat else cluster.groups[0].devices_per_node


def most_devices(problem: PlanningProblem) -> int:
    """More devices than any plan uses, in whole units: replicas sum up to at most N."""
    degrees = problem.graph.tensor_parallel_degrees if problem.tensor_parallel else (1,)
    unit = device_unit(problem.cluster)
    return -(-problem.microbatches * degrees[-1] // unit) * unit
