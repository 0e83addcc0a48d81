"""The layer graph: what can be cut into stages, and what each way to run a layer costs."""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from diaulos.errors import InputError


def _check_amount(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} is {value!r}", "it must be finite and at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedMemory:
    """Bytes that a layer holds however many microbatches are in flight, by kind."""

    parameters_bytes: float = 0.0
    gradients_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    versions_bytes: float = 0.0
    """What one more version of the weights adds: their copy and the gradients that it is due."""
    temporary_bytes: float = 0.0
    unspecified_bytes: float = 0.0
    """What a source states as one sum (Piper's `memoryUsageB`)."""

    def __post_init__(self) -> None:
        for kind, value in self.by_kind().items():
            _check_amount(f"{kind}_bytes", value)

    def by_kind(self) -> dict[str, float]:
        """Bytes by the name of their kind."""
        return {
            "parameters": self.parameters_bytes,
            "gradients": self.gradients_bytes,
            "optimizer": self.optimizer_bytes,
            "versions": self.versions_bytes,
            "temporary": self.temporary_bytes,
            "unspecified": self.unspecified_bytes,
        }

    @property
    def total_bytes(self) -> float:
        """The sum of all kinds."""
        return sum(self.by_kind().values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to run a layer, with its price (Piper's TMPC).

    All prices are those of one shard when the layer is split over `tensor_parallel` devices, for
    one microbatch.
    """

    name: str
    tensor_parallel: int = 1
    seconds: float
    """Forward and backward of one microbatch, with recomputation and traffic between shards."""
    forward_seconds: float | None = None
    """The forward part of `seconds`; None where the source did not measure it apart."""
    weight_backward_seconds: float | None = None
    """The part of `seconds` that makes gradients of weights; None where not measured apart."""
    update_seconds: float = 0.0
    """The optimizer's share, once per batch."""
    recompute: bool = False
    """Whether the backward runs the forward again instead of keeping its activations."""
    sequence_parallel: bool = False
    """Whether between the split parts each shard has a part of the positions."""
    parameter_bytes: float
    """What data-parallel replicas reduce."""
    activation_bytes: float
    """Held for every microbatch in flight (Piper's `memoryUsageA`)."""
    fixed_memory: FixedMemory = field(default_factory=FixedMemory)
    """Held once (Piper's `memoryUsageB`)."""
    input_sync_bytes: Mapping[int, float] = field(default_factory=dict)
    """Extra bytes per microbatch on the edge from a predecessor in another stage, by its id."""
    output_sync_bytes: Mapping[int, float] = field(default_factory=dict)
    """Extra bytes per microbatch on the edge to a successor in another stage, by its id."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("an option has an empty name", "plans name options")
        if self.tensor_parallel < 1:
            raise InputError(f"tensor_parallel is {self.tensor_parallel}", "it must be at least 1")
        for name in ("seconds", "update_seconds", "parameter_bytes", "activation_bytes"):
            _check_amount(name, getattr(self, name))
        for sync in (self.input_sync_bytes, self.output_sync_bytes):
            for neighbour, value in sync.items():
                _check_amount(f"the synchronised bytes with layer {neighbour}", value)
        for name in ("forward_seconds", "weight_backward_seconds"):
            part = getattr(self, name)
            if part is not None and not 0 <= part <= self.seconds:
                raise InputError(
                    f"{name} is {part!r}", f"it is a part of seconds, {self.seconds!r}"
                )

    @property
    def fixed_bytes(self) -> float:
        """Bytes held once, all kinds together; those of two weight versions."""
        return self.fixed_memory.total_bytes

    @property
    def is_split(self) -> bool:
        """Whether forward and backward seconds are known apart."""
        return self.forward_seconds is not None

    def memory_bytes(self, in_flight: int) -> float:
        """Bytes held with this many microbatches in flight (Piper: A*y + B)."""
        return self.activation_bytes * in_flight + self.fixed_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A node of the graph: the smallest thing that a stage can hold."""

    id: int
    name: str | None = None
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        if not self.options:
            raise InputError(f"layer {self.id} has no options", "it needs at least one")
        keys = [(option.tensor_parallel, option.name) for option in self.options]
        for degree, name in keys:
            if keys.count((degree, name)) > 1:
                raise InputError(
                    f"layer {self.id} has two options {name!r} at tensor-parallel degree {degree}",
                    "names are unique within a degree, since plans name options",
                )

    @property
    def label(self) -> str:
        """How messages and tables call the layer."""
        return f"{self.id} ({self.name})" if self.name else str(self.id)

    def options_at(self, tensor_parallel: int) -> tuple[Option, ...]:
        """The options at a tensor-parallel degree, in the order of the source."""
        return tuple(option for option in self.options if option.tensor_parallel == tensor_parallel)

    def option(self, name: str, tensor_parallel: int) -> Option:
        """The option of this name at this degree."""
        for option in self.options:
            if option.name == name and option.tensor_parallel == tensor_parallel:
                return option
        known = ", ".join(repr(option.name) for option in self.options_at(tensor_parallel))
        raise InputError(
            f"layer {self.label} has no option {name!r} at tensor-parallel degree "
            f"{tensor_parallel}",
            f"it has {known or 'none at this degree'}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A tensor that one layer hands to another."""

    source: int
    target: int
    bytes: float
    """One way, for one microbatch."""

    def __post_init__(self) -> None:
        _check_amount(f"bytes of the edge {self.source} -> {self.target}", self.bytes)


@dataclass(frozen=True, kw_only=True)
class LayerGraph:
    """A directed acyclic graph of layers with prices; the order of `layers` is that of the source.

    `provenance` says where the prices come from (device, tool, microbatch size, ...).
    """

    layers: tuple[Layer, ...]
    edges: tuple[Edge, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("the graph has no layers", "it needs at least one")
        self._check_ids()
        self._check_edges()
        self._check_sync_keys()
        if len(self.topological_order) < len(self.layers):
            left = sorted(set(self.positions) - set(self.topological_order))
            raise InputError(f"the edges make a cycle through layers {left[:10]}", "none may exist")

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """Index in `layers`, by layer id."""
        return {layer.id: index for index, layer in enumerate(self.layers)}

    @cached_property
    def predecessors(self) -> Mapping[int, tuple[int, ...]]:
        """Ids of the layers that feed a layer, by its id, in the order of the edges."""
        return self._neighbours("target", "source")

    @cached_property
    def successors(self) -> Mapping[int, tuple[int, ...]]:
        """Ids of the layers that a layer feeds, by its id, in the order of the edges."""
        return self._neighbours("source", "target")

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Layer ids, each after its predecessors; among the free ones the source's order rules."""
        missing = {layer_id: len(before) for layer_id, before in self.predecessors.items()}
        free = [self.positions[layer_id] for layer_id, count in missing.items() if count == 0]
        heapq.heapify(free)
        order = []
        while free:
            layer_id = self.layers[heapq.heappop(free)].id
            order.append(layer_id)
            for successor in self.successors[layer_id]:
                missing[successor] -= 1
                if missing[successor] == 0:
                    heapq.heappush(free, self.positions[successor])
        return tuple(order)

    @cached_property
    def tensor_parallel_degrees(self) -> tuple[int, ...]:
        """All degrees that some layer offers, ascending."""
        return tuple(sorted({o.tensor_parallel for layer in self.layers for o in layer.options}))

    def layer(self, layer_id: int) -> Layer:
        """The layer of this id."""
        if layer_id not in self.positions:
            raise InputError(f"there is no layer {layer_id}", f"there are {len(self.layers)}")
        return self.layers[self.positions[layer_id]]

    def _neighbours(self, key: str, value: str) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {layer.id: [] for layer in self.layers}
        for edge in self.edges:
            found[getattr(edge, key)].append(getattr(edge, value))
        return {layer_id: tuple(ids) for layer_id, ids in found.items()}

    def _check_ids(self) -> None:
        if len(self.positions) < len(self.layers):
            ids = [layer.id for layer in self.layers]
            twice = next(layer_id for layer_id in ids if ids.count(layer_id) > 1)
            raise InputError(f"two layers have the id {twice}", "ids must be unique")

    def _check_edges(self) -> None:
        seen = set()
        for edge in self.edges:
            ends = (edge.source, edge.target)
            for layer_id in ends:
                if layer_id not in self.positions:
                    raise InputError(
                        f"the edge {edge.source} -> {edge.target} names layer {layer_id}",
                        "both ends must be layers of the graph",
                    )
            if ends in seen or edge.source == edge.target:
                reason = "stands twice" if ends in seen else "is a loop"
                raise InputError(f"the edge {edge.source} -> {edge.target} {reason}")
            seen.add(ends)

    def _check_sync_keys(self) -> None:
        for layer in self.layers:
            before, after = set(self.predecessors[layer.id]), set(self.successors[layer.id])
            for option in layer.options:
                for keys, allowed, side in (
                    (option.input_sync_bytes.keys(), before, "predecessors"),
                    (option.output_sync_bytes.keys(), after, "successors"),
                ):
                    if not keys <= allowed:
                        raise InputError(
                            f"option {option.name!r} of layer {layer.label} synchronises with "
                            f"{sorted(keys - allowed)}",
                            f"these are not among its {side} {sorted(allowed)}",
                        )
