"""Clusters as groups of nodes on a line of devices."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError

FAST = Link(bandwidth_bytes_per_second=300.0)
SLOW = Link(bandwidth_bytes_per_second=25.0, latency_seconds=1e-3, duplex=True)
OLD = DeviceGroup(name="old", nodes=2, devices_per_node=4, memory_bytes=40.0, link=FAST)
NEW = DeviceGroup(name="new", nodes=1, devices_per_node=2, memory_bytes=80.0, link=FAST, speed=2.0)
MIXED = Cluster(groups=(OLD, NEW), link=SLOW)
FLAT = Cluster.flat(devices=8, memory_bytes=10.0, bandwidth_bytes_per_second=5.0)


def test_devices_stand_on_a_line() -> None:
    """Groups in order, in each its nodes; every device has a group, a node and a number there."""
    assert MIXED.devices == 10
    assert [MIXED.node_of(device) for device in range(10)] == [0] * 4 + [1] * 4 + [2] * 2
    assert MIXED.place_of(6) == (1, 2)
    assert MIXED.group_of(7) == OLD
    assert MIXED.group_of(8) == NEW
    for outside in (MIXED.group_of, MIXED.node_of):
        with pytest.raises(InputError, match="there is no device 10; the cluster has 10"):
            outside(10)


def test_what_is_flat() -> None:
    """One node is flat, whatever its link; several are not."""
    assert FLAT.is_flat
    assert not MIXED.is_flat
    assert not Cluster(groups=(OLD,), link=SLOW).is_flat
    assert Cluster(groups=(NEW,), link=SLOW).is_flat


def test_extremes() -> None:
    """The most memory of all devices, and the slowest link that joins any two of them."""
    assert MIXED.largest_memory_bytes == 80.0
    assert MIXED.slowest_link == SLOW
    assert Cluster(groups=(NEW,), link=SLOW).slowest_link == FAST


def test_a_flat_cluster_takes_other_figures() -> None:
    """Each figure is replaced alone, and where nothing is given nothing changes."""
    assert FLAT.with_flat(devices=3) == Cluster.flat(
        devices=3, memory_bytes=10.0, bandwidth_bytes_per_second=5.0
    )
    changed = FLAT.with_flat(memory_bytes=7.0, bandwidth_bytes_per_second=1.0)
    assert changed == Cluster.flat(devices=8, memory_bytes=7.0, bandwidth_bytes_per_second=1.0)
    assert MIXED.with_flat() == MIXED
    with pytest.raises(InputError, match="'cluster' has 2 groups of devices on 3 nodes"):
        MIXED.with_flat(devices=3)


def test_a_link_carries_one_direction_or_both() -> None:
    """Opposite messages take turns unless the link is duplex."""
    assert (FAST.direction_factor, SLOW.direction_factor) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": 0}, "devices is 0"),
        ({"memory_bytes": -1.0}, "memory_bytes is -1.0"),
        ({"memory_bytes": float("nan")}, "memory_bytes is nan"),
        ({"bandwidth_bytes_per_second": 0.0}, "bandwidth_bytes_per_second is 0.0"),
        ({"latency_seconds": -1.0}, "latency_seconds is -1.0"),
    ],
)
def test_what_is_no_cluster(changes: dict[str, float], message: str) -> None:
    """Figures that no machine has are refused."""
    figures = {"devices": 1, "memory_bytes": 1.0, "bandwidth_bytes_per_second": 1.0}
    with pytest.raises(InputError) as caught:
        Cluster.flat(**{**figures, **changes})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "a group of devices has an empty name"),
        ({"nodes": 0}, "nodes is 0"),
        ({"devices_per_node": 0}, "devices_per_node is 0"),
        ({"memory_bytes": -1.0}, "memory_bytes is -1.0"),
        ({"speed": 0.0}, "speed is 0.0"),
    ],
)
def test_what_is_no_group(changes: dict[str, object], message: str) -> None:
    """Each figure of a group has its rule."""
    with pytest.raises(InputError) as caught:
        replace(OLD, **changes)
    assert message in str(caught.value)


def test_groups_have_names_of_their_own() -> None:
    """Two groups of one name, and none at all, are refused."""
    with pytest.raises(InputError, match="two groups have the name 'old'"):
        Cluster(groups=(OLD, OLD), link=SLOW)
    with pytest.raises(InputError, match="a cluster has no groups"):
        Cluster(groups=(), link=SLOW)
