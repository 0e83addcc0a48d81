"""The cluster: groups of equal nodes of equal devices, and the links that join them.

All devices of a cluster form a line: the groups in their order, in each group its nodes. A device
is named by its number on that line, from 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from diaulos.clusters.amounts import check_above_zero, check_amount
from diaulos.clusters.device import Device
from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What joins any two devices: a message takes latency + bytes / bandwidth, one way."""

    bandwidth_bytes_per_second: float
    """One way."""
    latency_seconds: float = 0.0
    """Of one message; Piper's cost model does not count it."""
    duplex: bool = False
    """Whether both directions run at full rate at once."""

    def __post_init__(self) -> None:
        check_above_zero("bandwidth_bytes_per_second", self.bandwidth_bytes_per_second)
        check_amount("latency_seconds", self.latency_seconds)

    @property
    def direction_factor(self) -> int:
        """By what opposite messages of one size stretch the time of one: 1 if duplex, else 2."""
        return 1 if self.duplex else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Nodes that are all alike."""

    name: str
    nodes: int
    devices_per_node: int
    memory_bytes: float
    """Of each device."""
    link: Link
    """Between two devices of one node."""
    speed: float = 1.0
    """How much faster than the prices of the layers its devices compute."""
    device: Device | None = None
    """What each of them is, where that is known: what is needed to price layers."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a group of devices has an empty name", "messages name groups")
        for name in ("nodes", "devices_per_node"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        check_amount("memory_bytes", self.memory_bytes)
        check_above_zero("speed", self.speed)

    @property
    def devices(self) -> int:
        """Devices of all its nodes."""
        return self.nodes * self.devices_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Groups of devices in the order of the device line."""

    groups: tuple[DeviceGroup, ...]
    link: Link
    """Between two devices of different nodes."""
    name: str = "cluster"

    def __post_init__(self) -> None:
        if not self.groups:
            raise InputError("a cluster has no groups", "it needs at least one group of devices")
        names = [group.name for group in self.groups]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"two groups have the name {name!r}", "names must be unique")

    @classmethod
    def flat(
        cls,
        *,
        devices: int,
        memory_bytes: float,
        bandwidth_bytes_per_second: float,
        latency_seconds: float = 0.0,
        name: str = "cluster",
    ) -> "Cluster":
        """Equal devices, any two joined by an equal half-duplex link: Piper's flat model."""
        _check_devices(devices)
        link = Link(
            bandwidth_bytes_per_second=bandwidth_bytes_per_second, latency_seconds=latency_seconds
        )
        group = DeviceGroup(
            name="devices", nodes=1, devices_per_node=devices, memory_bytes=memory_bytes, link=link
        )
        return cls(groups=(group,), link=link, name=name)

    @property
    def devices(self) -> int:
        """Devices of all groups."""
        return sum(group.devices for group in self.groups)

    @property
    def is_flat(self) -> bool:
        """Whether it is one node, so that it does not matter where on the line a stage stands."""
        return len(self.groups) == 1 and self.groups[0].nodes == 1

    @property
    def largest_memory_bytes(self) -> float:
        """Of the devices that have the most."""
        return max(group.memory_bytes for group in self.groups)

    @property
    def slowest_link(self) -> Link:
        """The link of least bandwidth that joins two of its devices (of one node, if flat)."""
        inside = [group.link for group in self.groups]
        return min(
            inside if self.is_flat else [self.link, *inside],
            key=lambda link: link.bandwidth_bytes_per_second,
        )

    def group_of(self, device: int) -> DeviceGroup:
        """The group of a device; an `InputError` where the line has no such device."""
        for group, first in self._starts():
            if device < first + group.devices:
                return group
        raise self._outside(device)

    def node_of(self, device: int) -> int:
        """The node of a device, numbered through all groups."""
        return self.place_of(device)[0]

    def place_of(self, device: int) -> tuple[int, int]:
        """The node of a device, and its number there."""
        node = 0
        for group, first in self._starts():
            if device < first + group.devices:
                further, inside = divmod(device - first, group.devices_per_node)
                return node + further, inside
            node += group.nodes
        raise self._outside(device)

    def with_flat(
        self,
        *,
        devices: int | None = None,
        memory_bytes: float | None = None,
        bandwidth_bytes_per_second: float | None = None,
    ) -> "Cluster":
        """A flat cluster with some of its figures replaced; an `InputError` if it is not flat."""
        group = self.groups[0]
        if devices is bandwidth_bytes_per_second is memory_bytes is None:
            return self
        if not self.is_flat:
            raise InputError(
                f"the cluster {self.name!r} has {self._describe()}",
                "devices, memory and bandwidth can only be replaced where there is one of each",
                "change the cluster's file",
            )
        if devices is not None:
            _check_devices(devices)
            group = replace(group, devices_per_node=devices)
        if memory_bytes is not None:
            group = replace(group, memory_bytes=memory_bytes)
        if bandwidth_bytes_per_second is not None:
            rate = bandwidth_bytes_per_second
            group = replace(group, link=replace(group.link, bandwidth_bytes_per_second=rate))
        return replace(self, groups=(group,), link=group.link)

    def _starts(self) -> Iterator[tuple[DeviceGroup, int]]:
        first = 0
        for group in self.groups:
            yield group, first
            first += group.devices

    def _outside(self, device: int) -> InputError:
        return InputError(f"there is no device {device}", f"the cluster has {self.devices}")

    def _describe(self) -> str:
        nodes = sum(group.nodes for group in self.groups)
        groups = len(self.groups)
        return f"{groups} group{'s' * (groups > 1)} of devices on {nodes} nodes"


def _check_devices(devices: int) -> None:
    if devices < 1:
        raise InputError(f"devices is {devices}", "a cluster has at least 1 device")
