"""A stage as a module: its layers, one after another, some of them recomputed in the backward."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.models.layers import (
    LayeredModel,
    LayerSpec,
    build_layer,
    keyed_randomness,
    run_layer,
)
from diaulos.planning.plan import Plan, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLayer:
    """A layer of the model as the plan runs it."""

    spec: LayerSpec
    recompute: bool


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
    if stage.tensor_parallel != 1:
        raise InputError(
            f"a stage has tensor-parallel degree {stage.tensor_parallel}",
            "training runs stages of tensor-parallel degree 1",
            "plan with --no-tensor-parallel",
        )
    return tuple(
        PlacedLayer(
            spec=model.layers[layer],
            recompute=graph.layer(layer).option(stage.options[layer], 1).recompute,
        )
        for layer in stage.layers
    )


def build_stage(model: LayeredModel, placed: Sequence[PlacedLayer], seed: int) -> "StageModule":
    """A stage of a model as it is before the first update, the same in any split."""
    module = StageModule(placed, seed)
    with torch.no_grad():
        for name, parameter in module.named_weights():
            if name in model.ties:
                spec, owner = model.home(name)
                parameter.copy_(build_layer(spec, seed).get_parameter(owner))
    return module


class StageModule(nn.Module):
    """The layers of one stage, with weights drawn from (seed, layer name)."""

    def __init__(self, placed: Sequence[PlacedLayer], seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.names = [layer.spec.name for layer in placed]
        self.recomputed = [layer.recompute for layer in placed]
        self._places = {name: index for index, name in enumerate(self.names)}
        self.layers = nn.ModuleList(build_layer(layer.spec, seed) for layer in placed)

    def forward(self, hidden: Tensor, microbatch: int) -> Tensor:
        """The output of the last layer for the input of the first.

        The number of the microbatch, counted through all batches, decides what dropout leaves out.
        """
        for name in self.names:
            hidden = self.run_one(name, hidden, microbatch)
        return hidden

    def run_one(self, layer: str, hidden: Tensor, microbatch: int) -> Tensor:
        """The output of one layer, by name."""
        index = self._places[layer]
        with keyed_randomness(self.seed, microbatch, layer, hidden.device):
            return run_layer(self.layers[index], hidden, recompute=self.recomputed[index])

    def layer(self, name: str) -> nn.Module:
        """The layer of a name."""
        return self.layers[self._places[name]]

    def recomputed_parameters(self) -> list[nn.Parameter]:
        """The parameters of the layers that the backward runs again."""
        pairs = zip(self.layers, self.recomputed, strict=True)
        return [weight for layer, again in pairs if again for weight in layer.parameters()]

    def weights(self) -> Iterator[tuple[str, str, nn.Parameter]]:
        """The parameters, each with the name of its layer and its name there."""
        for layer_name, layer in zip(self.names, self.layers, strict=True):
            for name, parameter in layer.named_parameters():
                yield layer_name, name, parameter

    def named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters with names that are unique in the whole model: `block_3.norm.weight`."""
        for layer, name, parameter in self.weights():
            yield f"{layer}.{name}", parameter
