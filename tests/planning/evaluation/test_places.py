"""Where stages stand on the line of devices, and how that is told."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.planning.evaluation.places import describe_devices, on_devices, placed, shard_place
from tests.planning.plans import CLUSTER, plan, stage

LINK = Link(bandwidth_bytes_per_second=10.0)
NODES = Cluster(
    groups=(
        DeviceGroup(name="old", nodes=3, devices_per_node=2, memory_bytes=1.0, link=LINK),
        DeviceGroup(name="new", nodes=2, devices_per_node=4, memory_bytes=1.0, link=LINK),
    ),
    link=LINK,
)


def test_stages_stand_one_after_another() -> None:
    """On a flat cluster without a gap, beyond its end if it must be."""
    assert placed(plan(stage(0, d=3), stage(1, t=2), stage(2, d=9)), CLUSTER) == (0, 3, 5)


def test_gaps_keep_shards_in_nodes_and_stages_in_groups() -> None:
    """A stage starts at the next device where nothing of it crosses a border that it must not."""
    three = plan(stage(0), stage(1, t=2), stage(2, d=3))
    assert placed(three, NODES) == (0, 2, 6)
    assert placed(plan(stage(0), stage(1, d=3)), NODES) == (0, 1)


def test_stated_places_hold() -> None:
    """A plan that says where its stages stand is taken at its word."""
    stated = plan(replace(stage(0), first_device=5), replace(stage(1), first_device=2))
    assert placed(stated, NODES) == (5, 2)
    assert placed(on_devices(plan(stage(0), stage(1)), NODES), NODES) == (0, 1)


def test_no_place_is_an_error() -> None:
    """Degrees that fit nowhere are told with what they need."""
    with pytest.raises(InputError, match="stage 0 finds no 8 devices from device 0 on"):
        placed(plan(stage(0, t=8)), NODES)


def test_a_shard_has_a_device() -> None:
    """Replica r, shard k stands r*t + k devices behind the first of its stage."""
    two = plan(stage(0), stage(1, d=2, t=2))
    places = [shard_place(two, NODES, stage=1, replica=r, shard=k) for r in (0, 1) for k in (0, 1)]
    assert places == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert on_devices(two, NODES).devices_of(1) == range(2, 6)


@pytest.mark.parametrize(
    ("devices", "described"),
    [
        (range(6, 10), ["node 3: 0-3"]),
        (range(3, 4), ["node 1: 1"]),
        (range(6), ["nodes 0-2: 0-1"]),
        (range(1, 6), ["node 0: 1", "nodes 1-2: 0-1"]),
        (range(4, 8), ["nodes 2-3: 0-1"]),
        (range(7, 12), ["node 3: 1-3", "node 4: 0-1"]),
    ],
)
def test_devices_are_told_by_node(devices: range, described: list[str]) -> None:
    """Nodes where a stage has the same devices are told together."""
    assert describe_devices(NODES, devices) == described
