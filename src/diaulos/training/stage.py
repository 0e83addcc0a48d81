"""A stage as a module: its layers, one after another, some of them recomputed in the backward."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.models.layers import (
    LayeredModel,
    LayerSpec,
    Stream,
    build_layer,
    keyed_randomness,
    meta_layer,
    run_layer,
)
from diaulos.planning.plan import Plan, Stage
from diaulos.training.sharding import gather_positions, split_layer, take_positions

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLayer:
    """A layer of the model as the plan runs it."""

    spec: LayerSpec
    recompute: bool
    sequence_parallel: bool = False
    ties: Mapping[str, tuple[LayerSpec, str]] = field(default_factory=dict)
    """Its parameters that are one with another, with the layer of that one and its name there."""

    @property
    def takes_parts(self) -> bool:
        """Whether each shard gives it a part of the positions."""
        split = self.spec.tensor_split
        return self.sequence_parallel and split is not None and split.takes_parts

    @property
    def gives_parts(self) -> bool:
        """Whether it gives each shard a part of the positions."""
        split = self.spec.tensor_split
        return self.sequence_parallel and split is not None and split.gives_parts


def place_layers(
    model: LayeredModel, graph: LayerGraph, plan: Plan
) -> tuple[tuple[PlacedLayer, ...], ...]:
    """The layers of each stage of a plan.

    The graph must be that of the model: layer i of the model has id i and its name there.
    """
    names = [spec.name for spec in model.layers]
    if [layer.name for layer in graph.layers] != names or list(graph.positions) != list(
        range(len(names))
    ):
        raise InputError(
            "the graph is not that of the model",
            f"its layers must be {', '.join(f'{i} {name}' for i, name in enumerate(names))}",
            "profile this model and plan the graph that comes out",
        )
    order = [layer for stage in plan.stages for layer in stage.layers]
    if order != list(range(len(names))):
        raise InputError(
            f"the plan's stages hold the layers {order}",
            f"each of the {len(names)} layers stands in one stage, in the order of the model",
        )
    return tuple(_place_stage(model, graph, stage) for stage in plan.stages)


def _place_stage(model: LayeredModel, graph: LayerGraph, stage: Stage) -> tuple[PlacedLayer, ...]:
    return tuple(_place_layer(model, graph, layer, stage) for layer in stage.layers)


def _place_layer(model: LayeredModel, graph: LayerGraph, layer: int, stage: Stage) -> PlacedLayer:
    spec, degree = model.layers[layer], stage.tensor_parallel
    option = graph.layer(layer).option(stage.options[layer], degree)
    if degree > 1:
        if spec.tensor_split is None:
            raise InputError(
                f"layer {spec.name} stands in a stage of tensor-parallel degree {degree}",
                "it does not say how it is split",
                "give it a tensor_split, or plan with --no-tensor-parallel",
            )
        spec.tensor_split.check(spec.name, degree, sequence_parallel=option.sequence_parallel)
    return PlacedLayer(
        spec=spec,
        recompute=option.recompute,
        sequence_parallel=option.sequence_parallel and degree > 1,
        ties=model.ties_of(spec),
    )


def _build(placed: PlacedLayer, seed: int) -> nn.Module:
    layer = build_layer(placed.spec, seed)
    with torch.no_grad():
        for own, (owner, name) in placed.ties.items():
            layer.get_parameter(own).copy_(build_layer(owner, seed).get_parameter(name))
    return layer


def _part(
    layer: nn.Module, placed: PlacedLayer, mesh: "DeviceMesh | None", dtype: torch.dtype
) -> nn.Module:
    """What a shard has of a layer."""
    layer.to(dtype)
    if mesh is not None and placed.spec.tensor_split is not None:
        split = placed.spec.tensor_split
        split_layer(layer, split, mesh, sequence_parallel=placed.sequence_parallel)
    return layer


class StageModule(nn.Module):
    """The layers of one stage as they are before the first update, the same in any split.

    Weights are drawn from (seed, layer name); tied ones are those of their owner's layer. With a
    mesh of shards, whose ranks all make it, the module is this rank's part of the stage. On the
    meta device it has shapes and types only.
    """

    def __init__(
        self,
        placed: Sequence[PlacedLayer],
        seed: int,
        mesh: "DeviceMesh | None" = None,
        dtype: torch.dtype = torch.float32,
        *,
        on_meta: bool = False,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.names = [layer.spec.name for layer in placed]
        self.recomputed = [layer.recompute for layer in placed]
        self._places = {name: index for index, name in enumerate(self.names)}
        self._placed = placed
        self._mesh = mesh
        self.layers = nn.ModuleList(
            _part(meta_layer(own.spec) if on_meta else _build(own, seed), own, mesh, dtype)
            for own in placed
        )

    def forward(self, stream: Stream, microbatch: int) -> Stream:
        """The output of the last layer for the input of the first.

        The number of the microbatch, counted through all batches, decides what dropout leaves out.
        """
        for name in self.names:
            stream = self.run_one(name, stream, microbatch)
        return stream

    def run_one(self, layer: str, stream: Stream, microbatch: int) -> Stream:
        """The output of one layer, by name, for that of the layer before."""
        index = self._places[layer]
        with keyed_randomness(self.seed, microbatch, layer, stream[0].device):
            entering = self._entering(index, stream)
            output = run_layer(self.layers[index], entering, recompute=self.recomputed[index])
        is_last = index == len(self.names) - 1
        if self._mesh is not None and is_last and self._placed[index].gives_parts:
            return (gather_positions(output[0], self._mesh), *output[1:])
        return output

    def _entering(self, index: int, stream: Stream) -> Stream:
        """What the layer before gave, the first of it in parts or whole as this layer takes it."""
        given_parts = index > 0 and self._placed[index - 1].gives_parts
        takes_parts = self._placed[index].takes_parts
        if self._mesh is None or takes_parts == given_parts:
            return stream
        change = take_positions if takes_parts else gather_positions
        return (change(stream[0], self._mesh), *stream[1:])

    def layer(self, name: str) -> nn.Module:
        """The layer of a name."""
        return self.layers[self._places[name]]

    def recomputed_parameters(self) -> list[nn.Parameter]:
        """The parameters of the layers that the backward runs again, without those frozen."""
        pairs = zip(self.layers, self.recomputed, strict=True)
        return [weight for layer, again in pairs if again for weight in _trained(layer)]

    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained: all but those that are frozen."""
        return [weight for _, _, weight in self.weights()]

    def frozen(self) -> list[nn.Parameter]:
        """The parameters that stay as they are."""
        return [weight for weight in self.parameters() if not weight.requires_grad]

    def weights(self) -> Iterator[tuple[str, str, nn.Parameter]]:
        """The parameters that are trained, each with the name of its layer and its name there."""
        for layer_name, layer in zip(self.names, self.layers, strict=True):
            for name, parameter in layer.named_parameters():
                if parameter.requires_grad:
                    yield layer_name, name, parameter

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those with names that are unique in the whole model: `block_3.norm.weight`."""
        for layer, name, parameter in self.weights():
            yield f"{layer}.{name}", parameter


def _trained(layer: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in layer.parameters() if weight.requires_grad]
