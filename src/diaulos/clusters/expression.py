"""A cluster in a few characters: `4x8xH100-80GB`, or several of these joined by `+`."""

import re
from pathlib import Path

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.clusters.files import read_cluster
from diaulos.errors import InputError

_PART = re.compile(r"(?:(?P<nodes>\d+)x)?(?P<devices>\d+)x(?P<name>[^+]+)")
_EXAMPLE = "for example 4x8xH100-80GB, 8xA100-80GB, or 2x8xA100-80GB+4x8xH100-80GB"


def find_cluster(text: str | Path) -> Cluster:
    """The cluster of a TOML file, or of an expression."""
    if isinstance(text, Path) or text.endswith(".toml") or Path(text).is_file():
        return read_cluster(Path(text))
    return parse_cluster(text)


def parse_cluster(text: str) -> Cluster:
    """The cluster of an expression: nodes x devices of a node x device, joined by `+`.

    Without nodes there is one. Nodes are what the device usually stands in; between unlike ones
    the slower network counts.
    """
    parts = [_parse_part(part.strip(), text) for part in text.split("+")]
    groups = tuple(group for group, _ in parts)
    network = min((link for _, link in parts), key=lambda link: link.bandwidth_bytes_per_second)
    return Cluster(groups=groups, link=network, name=text)


def _parse_part(part: str, text: str) -> tuple[DeviceGroup, Link]:
    """A group of equal nodes, and the network of its devices."""
    match = _PART.fullmatch(part)
    if match is None:
        raise InputError(
            f"{text!r} is not a cluster",
            "a cluster is nodes x devices of a node x device, or a file",
            _EXAMPLE,
        )
    nodes, devices = int(match["nodes"] or 1), int(match["devices"])
    for what, count in (("nodes", nodes), ("devices", devices)):
        if count < 1:
            raise InputError(f"{text!r} has {count} {what}", "there is at least 1", _EXAMPLE)
    known = known_device(match["name"].strip())
    if devices > known.node.devices:
        raise InputError(
            f"{text!r} has {devices} devices in a node",
            f"{known.device.name} stands in {known.node.name}, which has {known.node.devices}",
            "say how many nodes there are, or describe your own in a file",
        )
    group = DeviceGroup(
        name=part,
        nodes=nodes,
        devices_per_node=devices,
        memory_bytes=known.device.memory_bytes,
        link=known.node.inside,
        device=known.device,
    )
    return group, known.node.network
