"""Clusters with more or less: of one group, in whole nodes where there are several."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup
from diaulos.planning.explanation.resizing import (
    device_unit,
    most_devices,
    with_devices,
    with_memory,
)
from tests.planning.problems import chain, option, problem

FLAT = problem(chain([option(), option(tensor_parallel=4)]), devices=4, memory=9.0, microbatches=6)
GROUP = DeviceGroup(name="a", nodes=2, devices_per_node=5, memory_bytes=9.0, link=FLAT.cluster.link)
NODES = Cluster(groups=(GROUP,), link=FLAT.cluster.link)


def test_memory() -> None:
    """Other memory on each device, and nothing else."""
    assert with_memory(FLAT.cluster, 7.0) == FLAT.cluster.with_flat(memory_bytes=7.0)
    assert with_memory(with_memory(NODES, 7.0), 9.0) == NODES


def test_devices() -> None:
    """One node grows by devices, several by nodes."""
    assert with_devices(FLAT.cluster, 7) == FLAT.cluster.with_flat(devices=7)
    assert with_devices(NODES, 15).groups[0].nodes == 3
    assert (device_unit(FLAT.cluster), device_unit(NODES)) == (1, 5)


def test_the_most_devices_that_a_plan_can_use() -> None:
    """As many replicas as microbatches, each on as many devices as it has shards."""
    assert most_devices(FLAT) == 24
    assert most_devices(replace(FLAT, tensor_parallel=False)) == 6
    assert most_devices(replace(FLAT, cluster=NODES)) == 25


def test_one_group_only() -> None:
    """With several groups there is no one size to change."""
    two = Cluster(groups=(GROUP, replace(GROUP, name="b")), link=NODES.link)
    with pytest.raises(ValueError, match="unpack"):
        with_memory(two, 1.0)
