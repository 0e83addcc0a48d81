"""Seconds of collectives and messages of a group of ranks, over the links between them.

A ring passes its bytes through every rank; a tree needs fewer messages one after the other. The
library takes what is faster, so that small amounts cost a tree's latency and large ones a ring's
bytes (Thakur et al., 2005; Sanders et al., 2009, for the tree at full bandwidth). Between nodes
every member of a node has a share of the network of its own, so a node with several members of
the group sends that much more at a time, until the links inside it are the bottleneck.
"""

import math
from dataclasses import dataclass

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """Ranks that exchange with each other, and what lies between them."""

    members: int
    members_per_node: int
    inside: Link
    """Between two devices of a node."""
    between: Link
    """From a device to one of another node."""

    def __post_init__(self) -> None:
        for name in ("members", "members_per_node"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")

    @property
    def nodes(self) -> int:
        """On which its members lie."""
        return math.ceil(self.members / self.members_per_node)

    @property
    def bandwidth_bytes_per_second(self) -> float:
        """Into and out of every member at once, along a ring through all of them."""
        inside = self.inside.bandwidth_bytes_per_second
        if self.nodes == 1:
            return inside
        together = self.members_per_node * self.between.bandwidth_bytes_per_second
        return together if self.members_per_node == 1 else min(inside, together)

    @property
    def ring_latency_seconds(self) -> float:
        """Of one message along every edge of the ring but one."""
        crossing = self.nodes - 1
        staying = self.members - 1 - crossing
        return crossing * self.between.latency_seconds + staying * self.inside.latency_seconds

    @property
    def tree_latency_seconds(self) -> float:
        """Of one message down to the leaves of a tree over the nodes, then inside them."""
        levels = math.ceil(math.log2(self.nodes))
        inside = math.ceil(math.log2(min(self.members, self.members_per_node)))
        return levels * self.between.latency_seconds + inside * self.inside.latency_seconds


def rank_group(cluster: Cluster, group: DeviceGroup, *, members: int, stride: int = 1) -> RankGroup:
    """The ranks 0, `stride`, 2 `stride` and so on of a group of devices, node after node."""
    return RankGroup(
        members=members,
        members_per_node=min(members, max(1, group.devices_per_node // stride)),
        inside=group.link,
        between=cluster.link,
    )


def all_reduce_seconds(group: RankGroup, size_bytes: float) -> float:
    """Seconds until every member has the sum of all members' `size_bytes`."""
    latency = 2 * min(group.ring_latency_seconds, group.tree_latency_seconds)
    return latency + 2 * _ring_seconds(group, size_bytes)


def all_gather_seconds(group: RankGroup, size_bytes: float) -> float:
    """Seconds until every member has all parts of what is `size_bytes` together."""
    return group.ring_latency_seconds + _ring_seconds(group, size_bytes)


def reduce_scatter_seconds(group: RankGroup, size_bytes: float) -> float:
    """Seconds until every member has its part of the sum of all members' `size_bytes`."""
    return group.ring_latency_seconds + _ring_seconds(group, size_bytes)


def all_to_all_seconds(group: RankGroup, size_bytes: float) -> float:
    """Seconds until every member has sent an equal part of its `size_bytes` to every other.

    Each member sends to those in its node and over its share of the network at once.
    """
    in_node = min(group.members, group.members_per_node) - 1
    elsewhere = group.members - 1 - in_node
    part = size_bytes / group.members
    inside = in_node * part / group.inside.bandwidth_bytes_per_second
    between = elsewhere * part / group.between.bandwidth_bytes_per_second
    hop = group.between if group.nodes > 1 else group.inside
    return (hop.latency_seconds if group.members > 1 else 0.0) + max(inside, between)


def point_to_point_seconds(link: Link, size_bytes: float) -> float:
    """Seconds of one message."""
    return link.latency_seconds + size_bytes / link.bandwidth_bytes_per_second


def _ring_seconds(group: RankGroup, size_bytes: float) -> float:
    """Of passing (n-1)/n of the bytes through every member."""
    share = (group.members - 1) / group.members
    return share * size_bytes / group.bandwidth_bytes_per_second
