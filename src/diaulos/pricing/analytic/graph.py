"""A model on a cluster as a layer graph with prices: what the planner plans."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.models.operations import (
    LayerOperations,
    Model,
    ModelLayer,
    ModelOperations,
    Workload,
    passing_bytes,
)
from diaulos.pricing.analytic.account import Sharding, StateBytes, state_bytes
from diaulos.pricing.analytic.groups import Degrees, Groups, rank_groups
from diaulos.pricing.analytic.options import LayerOptions, Recompute
from diaulos.pricing.analytic.shares import activation_bytes, temporary_bytes
from diaulos.pricing.analytic.times import layer_seconds
from diaulos.pricing.devices.operations import optimizer_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Which ways to run layers are offered."""

    tensor_parallel: tuple[int, ...] = (1,)
    """Degrees; those that do not divide the heads, or are more than a node has, are left out."""
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    base: LayerOptions = field(default_factory=LayerOptions)
    """All else; sequence parallelism counts where there is tensor parallelism."""


def priced_graph(model: Model, cluster: Cluster, workload: Workload, ways: Ways) -> LayerGraph:
    """A model's layers, each with an option for every degree and recomputation.

    They are a chain, with further edges where a tensor goes past layers.

    An option is called as its recomputation is. Each device of a tensor-parallel group sends and
    receives its share of what crosses a border, which the synchronised bytes of options say.
    """
    operations = model(workload)
    degrees = [
        degree
        for degree in sorted(set(ways.tensor_parallel))
        if operations.heads % degree == 0 and degree <= cluster.groups[0].devices_per_node
    ]
    handed = _handed(operations)
    pricer = _Pricer(cluster, ways, degrees, handed)
    layers = operations.layers
    return LayerGraph(
        layers=tuple(
            Layer(
                id=index,
                name=layer.name,
                options=tuple(pricer.options(layers, index)),
            )
            for index, layer in enumerate(layers)
        ),
        edges=tuple(
            Edge(source=source, target=target, bytes=size / degrees[-1])
            for (source, target), size in handed.items()
        ),
        provenance={
            "model": operations.name,
            "cluster": cluster.name,
            "prices": "analytic",
            "microbatch_size": str(workload.microbatch_size),
            "sequence_length": str(workload.sequence_length),
            "precision": ways.base.precision.name,
            "attention": ways.base.attention.value,
        },
    )


def _handed(operations: ModelOperations) -> dict[tuple[int, int], float]:
    """Bytes from layer to layer: to the next one, and past it."""
    places = {layer.name: place for place, layer in enumerate(operations.layers)}
    passing = passing_bytes(tuple(places), operations.skips)
    found = {
        (place, place + 1): layer.operations.output_bytes - passing[place]
        for place, layer in enumerate(operations.layers[:-1])
    }
    for skip in operations.skips:
        ends = (places[skip.source], places[skip.target])
        found[ends] = found.get(ends, 0.0) + skip.bytes
    return found


class _Pricer:
    """Prices options; those of equal layers once."""

    def __init__(
        self,
        cluster: Cluster,
        ways: Ways,
        degrees: Sequence[int],
        handed: Mapping[tuple[int, int], float],
    ) -> None:
        self._ways = ways
        self._degrees = degrees
        self._entering: dict[int, dict[int, float]] = {}
        self._leaving: dict[int, dict[int, float]] = {}
        for (source, target), size in handed.items():
            self._entering.setdefault(target, {})[source] = size
            self._leaving.setdefault(source, {})[target] = size
        self._groups = {
            degree: rank_groups(cluster, Degrees(tensor=degree, data=ways.base.expert_parallel))
            for degree in degrees
        }
        self._made: dict[int, tuple[Option, ...]] = {}

    def options(self, layers: Sequence[ModelLayer], index: int) -> Iterator[Option]:
        """The options of a layer, with the bytes at its borders."""
        operations = layers[index].operations
        key = id(operations)
        if key not in self._made:
            self._made[key] = tuple(self._options(operations))
        entering, leaving = self._entering.get(index, {}), self._leaving.get(index, {})
        for option in self._made[key]:
            more = 1 / option.tensor_parallel - 1 / self._degrees[-1]
            yield replace(
                option,
                input_sync_bytes={source: size * more for source, size in entering.items()},
                output_sync_bytes={target: size * more for target, size in leaving.items()},
            )

    def _options(self, operations: LayerOperations) -> Iterator[Option]:
        offered = self._ways.recompute if operations.recomputable else (Recompute.NONE,)
        for degree in self._degrees:
            for way in offered:
                chosen = replace(
                    self._ways.base,
                    tensor_parallel=degree,
                    sequence_parallel=self._ways.base.sequence_parallel and degree > 1,
                    recompute=way,
                )
                yield _option(operations, chosen, self._groups[degree])


def _option(operations: LayerOperations, chosen: LayerOptions, groups: Groups) -> Option:
    seconds = layer_seconds(operations, chosen, groups)
    state = state_bytes(
        operations, chosen, Degrees(tensor=chosen.tensor_parallel), sharding=Sharding.NOTHING
    )
    return Option(
        name=chosen.recompute.value,
        tensor_parallel=chosen.tensor_parallel,
        seconds=seconds.total,
        forward_seconds=seconds.forward.total,
        weight_backward_seconds=seconds.weight_backward,
        update_seconds=_update_seconds(state, chosen, groups),
        recompute=chosen.recompute is not Recompute.NONE,
        sequence_parallel=chosen.sequence_parallel,
        parameter_bytes=state.gradients,
        activation_bytes=activation_bytes(operations, chosen),
        fixed_memory=FixedMemory(
            parameters_bytes=state.parameters,
            gradients_bytes=state.gradients,
            optimizer_bytes=state.optimizer,
            versions_bytes=state.parameters + state.gradients,
            temporary_bytes=temporary_bytes(operations, chosen),
        ),
    )


def _update_seconds(state: StateBytes, chosen: LayerOptions, groups: Groups) -> float:
    size = state.updated * chosen.precision.update_bytes
    return optimizer_seconds(groups.device, size_bytes=size, launches=1)
