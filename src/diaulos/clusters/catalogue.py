"""The devices and nodes that the package knows: one data file each."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable

from diaulos.clusters.cluster import Link
from diaulos.clusters.device import Device, Source
from diaulos.clusters.device_files import parse_device
from diaulos.clusters.node import Node
from diaulos.documents import Value, parse_toml
from diaulos.errors import InputError
from diaulos.units import parse_bandwidth

_DEVICE_FORMAT = "diaulos.device/1"
_NODE_FORMAT = "diaulos.node/1"
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevice:
    """A device and the node that it usually stands in."""

    device: Device
    node: Node


def device_names() -> tuple[str, ...]:
    """The names of all known devices, in order."""
    return tuple(sorted(_stem(each) for each in _folder("devices")))


def known_device(name: str) -> KnownDevice:
    """A known device, whatever the case and the hyphens of its name.

    An `InputError` names those alike where there is none.
    """
    by_key = {_key(known): known for known in device_names()}
    if _key(name) not in by_key:
        raise InputError(f"there is no device {name!r}", _near(_key(name), by_key), _OWN_DEVICE)
    document = _read("devices", by_key[_key(name)])
    _check_format(document, _DEVICE_FORMAT)
    device = parse_device(document, ("format", "node"))
    return KnownDevice(device=device, node=known_node(document.members()["node"].text()))


def known_node(name: str) -> Node:
    """A known node."""
    document = _read("nodes", name)
    _check_format(document, _NODE_FORMAT)
    fields = document.fields(("format", "name", "devices", "inside", "network", "sources"))
    sources = fields["sources"].fields(("inside", "network"))
    return Node(
        name=fields["name"].text(),
        devices=fields["devices"].integer(minimum=1),
        inside=_parse_reached(fields["inside"]),
        network=_parse_reached(fields["network"]),
        sources=tuple(Source(figure=key, text=each.text()) for key, each in sources.items()),
    )


_OWN_DEVICE = "diaulos clusters lists all; describe another in a cluster file"


def _near(key: str, by_key: Mapping[str, str]) -> str:
    """Those of the known devices that a name may have meant."""
    starting = [known for known in by_key if known.startswith(key)]
    close = starting or get_close_matches(key, by_key, n=_SHOWN_NAMES, cutoff=0.5)
    if not close:
        return f"known are {', '.join(by_key.values())}"
    return f"did you mean {' or '.join(by_key[each] for each in close[:_SHOWN_NAMES])}?"


def _key(name: str) -> str:
    """A name by its letters and digits alone."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _parse_reached(value: Value) -> Link:
    """A link whose bandwidth is that of the data sheet times what is reached of it."""
    fields = value.fields(("bandwidth", "efficiency", "latency_seconds", "duplex"))
    with value.context():
        stated = fields["bandwidth"].parsed(parse_bandwidth)
        return Link(
            bandwidth_bytes_per_second=stated * fields["efficiency"].number(above=0),
            latency_seconds=fields["latency_seconds"].number(),
            duplex=fields["duplex"].boolean(),
        )


def _check_format(document: Value, expected: str) -> None:
    stated = document.members().get("format")
    if stated is None or stated.text() != expected:
        raise document.error("has another format", f"it must be {expected!r}")


def _folder(kind: str) -> list[Traversable]:
    folder = files("diaulos.clusters") / "data" / kind
    return [each for each in folder.iterdir() if each.name.endswith(".toml")]


def _read(kind: str, name: str) -> Value:
    file = files("diaulos.clusters") / "data" / kind / f"{name}.toml"
    return parse_toml(file.read_text(encoding="utf-8"), f"{name}.toml")


def _stem(file: Traversable) -> str:
    return file.name.removesuffix(".toml")
