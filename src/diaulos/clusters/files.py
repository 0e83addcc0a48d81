"""The cluster file: TOML, flat with a few keys, or with groups of nodes and their links.

A group may say what its devices are: by the name of a known one, which brings memory and links
where they are not stated, or in a table of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.clusters.device import Device
from diaulos.clusters.device_files import device_document, parse_device
from diaulos.clusters.toml import toml_text
from diaulos.documents import Value, read_toml, write_text
from diaulos.units import parse_bandwidth, parse_bytes

FORMAT = "diaulos.cluster/1"
_FLAT = ("devices", "memory", "bandwidth")
_GROUP = ("name", "nodes", "devices_per_node")
_OF_DEVICE = ("memory", "link")
"""What a group must state unless its device is a known one."""


def read_cluster(path: Path) -> Cluster:
    """A cluster from a TOML file, flat or with groups."""
    document = read_toml(path)
    has_groups = "groups" in document.members()
    keys = ("groups",) if has_groups else _FLAT
    extras = ("name", "link") if has_groups else ("name", "latency_seconds")
    fields = document.fields(("format", *keys), extras)
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    name = fields["name"].text() if "name" in fields else path.stem
    with document.context():
        return _parse_groups(fields, name) if has_groups else _parse_flat(fields, name)


def write_cluster(path: Path, cluster: Cluster) -> None:
    """Write a cluster as TOML; reading it back gives an equal one."""
    document = {"format": FORMAT, **cluster_document(cluster)}
    write_text(path, toml_text(document, _COMMENTS))


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """A cluster as JSON and TOML hold it, sizes in bytes and rates in bytes per second."""
    group = cluster.groups[0]
    flat = Cluster.flat(
        devices=group.devices,
        memory_bytes=group.memory_bytes,
        bandwidth_bytes_per_second=group.link.bandwidth_bytes_per_second,
        latency_seconds=group.link.latency_seconds,
        name=cluster.name,
    )
    if cluster == flat:
        return {
            "name": cluster.name,
            "devices": cluster.devices,
            "memory": group.memory_bytes,
            "bandwidth": group.link.bandwidth_bytes_per_second,
            "latency_seconds": group.link.latency_seconds,
        }
    return {
        "name": cluster.name,
        "link": link_document(cluster.link),
        "groups": [_group_document(group) for group in cluster.groups],
    }


def parse_grouped_cluster(value: Value) -> Cluster:
    """The cluster of a document with groups, as `cluster_document` makes it."""
    fields = value.fields(("name", "link", "groups"))
    with value.context():
        return _parse_groups(fields, fields["name"].text())


def _parse_flat(fields: Mapping[str, Value], name: str) -> Cluster:
    latency = fields["latency_seconds"].number() if "latency_seconds" in fields else 0.0
    return Cluster.flat(
        devices=fields["devices"].integer(minimum=1),
        memory_bytes=fields["memory"].parsed(parse_bytes),
        bandwidth_bytes_per_second=fields["bandwidth"].parsed(parse_bandwidth),
        latency_seconds=latency,
        name=name,
    )


def _parse_groups(fields: Mapping[str, Value], name: str) -> Cluster:
    groups = tuple(_parse_group(group) for group in fields["groups"].items())
    link = _parse_link(fields["link"]) if "link" in fields else _slowest_network(fields["groups"])
    return Cluster(groups=groups, link=link, name=name)


def _parse_group(value: Value) -> DeviceGroup:
    name = _known_name(value)
    always = _GROUP if name is not None else (*_GROUP, *_OF_DEVICE)
    fields = value.fields(always, ("speed", "device", *_OF_DEVICE))
    with value.context():
        known = None if name is None else known_device(name)
        return DeviceGroup(
            name=fields["name"].text(),
            nodes=fields["nodes"].integer(minimum=1),
            devices_per_node=fields["devices_per_node"].integer(minimum=1),
            memory_bytes=(
                known.device.memory_bytes
                if known is not None and "memory" not in fields
                else fields["memory"].parsed(parse_bytes)
            ),
            link=(
                known.node.inside
                if known is not None and "link" not in fields
                else _parse_link(fields["link"])
            ),
            speed=fields["speed"].number(above=0) if "speed" in fields else 1.0,
            device=_parse_own_device(fields) if known is None else known.device,
        )


def _known_name(group: Value) -> str | None:
    """The name of a known device that a group states; None where it has a table or nothing."""
    stated = group.members().get("device")
    return None if stated is None or isinstance(stated.raw, dict) else stated.text()


def _parse_own_device(fields: Mapping[str, Value]) -> Device | None:
    return parse_device(fields["device"]) if "device" in fields else None


def _slowest_network(groups: Value) -> Link:
    """Of the groups' usual nodes, where a file does not state its link between nodes."""
    names = [_known_name(group) for group in groups.items()]
    if not names or None in names:
        raise groups.error(
            "do not all have a known device, and the file has no table 'link'",
            "the link between nodes must be stated",
            "add [link] with a bandwidth",
        )
    with groups.context():
        networks = [known_device(name).node.network for name in names if name is not None]
    return min(networks, key=lambda link: link.bandwidth_bytes_per_second)


def _parse_link(value: Value) -> Link:
    fields = value.fields(("bandwidth",), ("latency_seconds", "duplex"))
    with value.context():
        return Link(
            bandwidth_bytes_per_second=fields["bandwidth"].parsed(parse_bandwidth),
            latency_seconds=(
                fields["latency_seconds"].number() if "latency_seconds" in fields else 0.0
            ),
            duplex=fields["duplex"].boolean() if "duplex" in fields else False,
        )


def _group_document(group: DeviceGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "nodes": group.nodes,
        "devices_per_node": group.devices_per_node,
        "memory": group.memory_bytes,
        "speed": group.speed,
        "link": link_document(group.link),
    } | ({} if group.device is None else {"device": device_document(group.device)})


def link_document(link: Link) -> dict[str, Any]:
    """A link as JSON and TOML hold it."""
    return {
        "bandwidth": link.bandwidth_bytes_per_second,
        "latency_seconds": link.latency_seconds,
        "duplex": link.duplex,
    }


_MEMORY = 'bytes of each device; text such as "80GB" works too'
_BANDWIDTH = "bytes per second, one way"
_COMMENTS: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        ("memory",): _MEMORY,
        ("groups", "memory"): _MEMORY,
        ("bandwidth",): _BANDWIDTH,
        ("link", "bandwidth"): _BANDWIDTH,
        ("groups", "link", "bandwidth"): _BANDWIDTH,
    }
)
