"""Seconds of collectives and messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.clusters.cluster import Link
from diaulos.clusters.expression import parse_cluster
from diaulos.errors import InputError
from diaulos.pricing.devices.collectives import (
    RankGroup,
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    point_to_point_seconds,
    rank_group,
    reduce_scatter_seconds,
)

FAST = Link(bandwidth_bytes_per_second=100e9, latency_seconds=1e-6, duplex=True)
SLOW = Link(bandwidth_bytes_per_second=10e9, latency_seconds=5e-6, duplex=True)
COLLECTIVES = (
    all_reduce_seconds,
    all_gather_seconds,
    reduce_scatter_seconds,
    all_to_all_seconds,
)


def group(members: int, per_node: int) -> RankGroup:
    """Ranks with the fast link inside nodes and the slow one between them."""
    return RankGroup(members=members, members_per_node=per_node, inside=FAST, between=SLOW)


GROUPS = st.builds(group, st.integers(1, 512), st.sampled_from([1, 2, 4, 8]))


def test_a_ring_in_a_node() -> None:
    """8 members: 7/8 of the bytes each way, and 7 messages one after the other."""
    each = 7 / 8 * 1e9 / 100e9
    assert all_gather_seconds(group(8, 8), 1e9) == pytest.approx(7e-6 + each)
    assert reduce_scatter_seconds(group(8, 8), 1e9) == pytest.approx(7e-6 + each)
    assert all_reduce_seconds(group(8, 8), 1e9) == pytest.approx(2 * 3e-6 + 2 * each)


def test_one_member_of_a_node_has_its_share_of_the_network() -> None:
    """Between nodes the slow link counts."""
    assert all_gather_seconds(group(4, 1), 1e9) == pytest.approx(15e-6 + 3 / 4 * 1e9 / 10e9)


def test_several_members_send_together() -> None:
    """4 members of a node have 4 shares of the network; 16 are bound by the link inside."""
    assert group(8, 4).bandwidth_bytes_per_second == 40e9
    assert group(32, 16).bandwidth_bytes_per_second == 100e9


def test_one_member_exchanges_nothing() -> None:
    """No collective of one costs anything."""
    for collective in COLLECTIVES:
        assert collective(group(1, 1), 1e9) == 0


@given(GROUPS, st.floats(0, 1e11))
def test_more_bytes_are_never_faster(ranks: RankGroup, size_bytes: float) -> None:
    """Each collective's time grows with the bytes, and no bytes still take the latency."""
    for collective in COLLECTIVES:
        assert collective(ranks, size_bytes + 1e6) >= collective(ranks, size_bytes) >= 0


@given(st.sampled_from([2, 4, 8, 16, 64, 256]), st.floats(1, 1e11))
def test_closer_is_never_slower(members: int, size_bytes: float) -> None:
    """Members of the same node are at least as fast as those each in a node of its own."""
    for collective in COLLECTIVES:
        apart = collective(group(members, 1), size_bytes)
        assert collective(group(members, members), size_bytes) <= apart


@given(GROUPS, st.floats(1, 1e11))
def test_an_all_reduce_is_no_slower_than_its_halves(ranks: RankGroup, size_bytes: float) -> None:
    """A ring's all-reduce is a reduce-scatter and an all-gather; a tree's may be faster."""
    halves = reduce_scatter_seconds(ranks, size_bytes) + all_gather_seconds(ranks, size_bytes)
    assert all_reduce_seconds(ranks, size_bytes) <= halves * (1 + 1e-9)


def test_many_members_reduce_along_a_tree() -> None:
    """Of 512 nodes, small all-reduces take twice 9 messages, not twice 511."""
    assert all_reduce_seconds(group(512, 1), 0) == pytest.approx(2 * 9 * 5e-6)


def test_all_to_all_is_bound_by_the_network() -> None:
    """Of 2 nodes of 4, half of the bytes leave the node over each member's own share."""
    assert all_to_all_seconds(group(8, 4), 8e9) == pytest.approx(5e-6 + 4e9 / 10e9)
    assert all_to_all_seconds(group(8, 8), 8e9) == pytest.approx(1e-6 + 7e9 / 100e9)


def test_a_message_is_latency_and_bytes() -> None:
    """Between two devices nothing else counts."""
    assert point_to_point_seconds(SLOW, 1e9) == pytest.approx(5e-6 + 0.1)


def test_all_reduces_are_as_measured() -> None:
    """A DGX A100 reaches 232.5 GB/s of bus bandwidth (NVIDIA/nccl-tests, issue 175)."""
    cluster = parse_cluster("8xA100-80GB")
    ranks = rank_group(cluster, cluster.groups[0], members=8)
    bus = 2 * 7 / 8 * 4e9 / all_reduce_seconds(ranks, 4e9)
    assert bus == pytest.approx(232.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("members", "stride", "per_node"), [(8, 1, 8), (4, 1, 4), (16, 1, 8), (4, 8, 1), (8, 2, 4)]
)
def test_strides_say_how_many_lie_in_a_node(members: int, stride: int, per_node: int) -> None:
    """With tensor parallelism of 8 inside nodes, replicas are one to a node."""
    cluster = parse_cluster("16x8xH100-80GB")
    ranks = rank_group(cluster, cluster.groups[0], members=members, stride=stride)
    assert ranks.members_per_node == per_node


def test_a_group_has_members() -> None:
    """None is an error."""
    with pytest.raises(InputError, match="members is 0"):
        group(0, 1)
