"""Segments as the layers of a model, each parameter owned by the layer that uses it first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from diaulos.models.decoders.operations import LOSS, loss_operations
from diaulos.models.operations import (
    LayerOperations,
    ModelLayer,
    ModelOperations,
    Skip,
    Workload,
    passing_bytes,
)
from diaulos.models.traced.layers import OwnedParameter, SplitPlan, layer_operations
from diaulos.models.traced.naming import segment_names
from diaulos.models.traced.tracer import Segment


class Assembly:
    """Turns segments into layers; those of equal blocks are one object."""

    def __init__(
        self,
        names: Mapping[Tensor, str],
        segments: Sequence[Segment],
        plan: SplitPlan,
    ) -> None:
        self._names = names
        self._sizes = {name: tensor.numel() for tensor, name in names.items()}
        self._inner = _parameters_of_blocks(segments, names)
        self._segments = segments
        self._plan = plan
        self._owners: dict[str, str] = {}
        self._made: dict[tuple[object, ...], LayerOperations] = {}
        self.layer_names = segment_names(segments)

    def layers(self) -> list[ModelLayer]:
        """All of them, without the loss."""
        owned = [
            self._owned(segment, name)
            for segment, name in zip(self._segments, self.layer_names, strict=True)
        ]
        owned[0] += tuple(
            OwnedParameter(name=name, count=count)
            for name, count in self._sizes.items()
            if name not in self._owners  # what training leaves alone
        )
        passing = passing_bytes(self.layer_names, self.skips())
        parts = zip(self.layer_names, self._segments, owned, passing, strict=True)
        return [
            ModelLayer(name=name, operations=self._operations(segment, parameters, size))
            for name, segment, parameters, size in parts
        ]

    def skips(self) -> tuple[Skip, ...]:
        """Tensors that go past the next layer."""
        return tuple(
            Skip(source=self.layer_names[some.segment], target=name, bytes=some.bytes)
            for segment, name in zip(self._segments, self.layer_names, strict=True)
            for some in segment.further
        )

    def _owned(self, segment: Segment, layer: str) -> tuple[OwnedParameter, ...]:
        """A block's own parameters; of other segments, those that their kernels read."""
        if segment.block is not None:
            names = self._inner[segment.block.path]
        else:
            used = {some.key for step in segment.tape.forward for some in step.reads}
            parameters = segment.tape.parameters
            names = [parameters[key] for key in sorted(used & parameters.keys())]
        found = []
        for name in names:
            owner = self._owners.setdefault(name, layer)
            found.append(
                OwnedParameter(
                    name=name, count=self._sizes[name], owner=None if owner == layer else owner
                )
            )
        return tuple(found)

    def _operations(
        self, segment: Segment, parameters: tuple[OwnedParameter, ...], passing_bytes: float
    ) -> LayerOperations:
        held = tuple((some.count, some.owner) for some in parameters)
        key = (id(segment.tape), held, passing_bytes)
        if key not in self._made:
            path = segment.traced_path
            own = parameters
            if segment.block is not None:
                own = tuple(_renamed(some, segment.block.path, path) for some in parameters)
            made = layer_operations(segment.tape, own, self._plan, path=path)
            self._made[key] = replace(made, output_bytes=made.output_bytes + passing_bytes)
        return self._made[key]


def assembled(
    name: str, workload: Workload, assembly: Assembly, *, has_loss: bool, stated_heads: int
) -> ModelOperations:
    """All layers as a model, with cross entropy of what the last one gives if it `has_loss`.

    Where no attention is seen, heads are as stated.
    """
    layers = assembly.layers()
    attentions = [some for layer in layers for some in layer.operations.attentions]
    stacks = [p.count for layer in layers for p in layer.operations.products if p.experts]
    if has_loss:
        scores = round(layers[-1].operations.output_bytes / workload.element_bytes)
        loss = loss_operations(scores, workload.element_bytes)
        layers.append(ModelLayer(name=LOSS, operations=loss))
    return ModelOperations(
        name=name,
        workload=workload,
        layers=tuple(layers),
        heads=min((some.heads for some in attentions), default=stated_heads),
        experts=min(stacks, default=1),
        skips=assembly.skips(),
    )


def _parameters_of_blocks(
    segments: Sequence[Segment], names: Mapping[Tensor, str]
) -> dict[str, list[str]]:
    """By the path of the block."""
    blocks = [segment.block for segment in segments if segment.block is not None]
    return {block.path: [names[p] for p in block.module.parameters()] for block in blocks}


def _renamed(some: OwnedParameter, path: str, traced_path: str) -> OwnedParameter:
    """As it is called in the block that was traced."""
    inner = some.name.removeprefix(f"{path}.")
    return some if inner == some.name else replace(some, name=f"{traced_path}.{inner}")
