"""The node: how many devices a machine has, and the links between them and out of it."""

from dataclasses import dataclass

from diaulos.clusters.cluster import Link
from diaulos.clusters.device import Source
from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A kind of machine, as it is sold."""

    name: str
    devices: int
    """At most; a TPU's node is its pod, whose chips are all joined alike."""
    inside: Link
    """Between two of its devices, with the bandwidth that collectives reach."""
    network: Link
    """From one device to one of another node: the device's share, as far as it is reached."""
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a node has an empty name", "messages name nodes")
        if self.devices < 1:
            raise InputError(f"devices is {self.devices}", "a node has at least 1")
