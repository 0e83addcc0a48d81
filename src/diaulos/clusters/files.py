"""The cluster file: TOML, flat with a few keys, or with groups of nodes and their links."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.documents import Value, read_toml, write_text
from diaulos.units import parse_bandwidth, parse_bytes

FORMAT = "diaulos.cluster/1"
_FLAT = ("devices", "memory", "bandwidth")
_GROUP = ("name", "nodes", "devices_per_node", "memory", "link")


def read_cluster(path: Path) -> Cluster:
    """A cluster from a TOML file, flat or with groups."""
    document = read_toml(path)
    has_groups = "groups" in document.members()
    keys = ("link", "groups") if has_groups else _FLAT
    extras = ("name",) if has_groups else ("name", "latency_seconds")
    fields = document.fields(("format", *keys), extras)
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    name = fields["name"].text() if "name" in fields else path.stem
    with document.context():
        return _parse_groups(fields, name) if has_groups else _parse_flat(fields, name)


def write_cluster(path: Path, cluster: Cluster) -> None:
    """Write a cluster as TOML; reading it back gives an equal one."""
    top = {"format": FORMAT, **cluster_document(cluster)}
    tables = [("[link]", top.pop("link"))] if "link" in top else []
    for group in top.pop("groups", ()):
        link = group.pop("link")
        tables += [("[[groups]]", group), ("[groups.link]", link)]
    text = _lines(top) + "".join(f"\n{head}\n{_lines(table)}" for head, table in tables)
    write_text(path, text)


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
        "link": _link_document(cluster.link),
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
    return Cluster(groups=groups, link=_parse_link(fields["link"]), name=name)


def _parse_group(value: Value) -> DeviceGroup:
    fields = value.fields(_GROUP, ("speed",))
    with value.context():
        return DeviceGroup(
            name=fields["name"].text(),
            nodes=fields["nodes"].integer(minimum=1),
            devices_per_node=fields["devices_per_node"].integer(minimum=1),
            memory_bytes=fields["memory"].parsed(parse_bytes),
            link=_parse_link(fields["link"]),
            speed=fields["speed"].number(above=0) if "speed" in fields else 1.0,
        )


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
        "link": _link_document(group.link),
    }


def _link_document(link: Link) -> dict[str, Any]:
    return {
        "bandwidth": link.bandwidth_bytes_per_second,
        "latency_seconds": link.latency_seconds,
        "duplex": link.duplex,
    }


_COMMENTS: Mapping[str, str] = {
    "memory": '  # bytes of each device; text such as "80GB" works too',
    "bandwidth": "  # bytes per second, one way",
}


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(
        f"{key} = {_scalar(value)}{_COMMENTS.get(key, '')}\n" for key, value in table.items()
    )


def _scalar(value: object) -> str:
    if isinstance(value, str):
        # TOML's strings are JSON's, but that it wants the one control character DEL escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
