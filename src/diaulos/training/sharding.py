"""Tensor parallelism: layers split over the shards of a stage, by torch's own styles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import torch.distributed as dist
from torch import Tensor, nn

from diaulos.models.dropout import Dropout
from diaulos.models.tensor_split import Split, TensorSplit

if TYPE_CHECKING:  # takes half a second to import, and only tensor-parallel stages need it
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import ParallelStyle

_POSITIONS = 1
"""The dimension that sequence parallelism splits."""
_HEADS = 1
_HEADS_OF_NORMS = 2


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a parameter a rank holds, of parts as `torch.chunk` makes them."""

    dim: int | None = None
    """None where it holds the whole, as all shards do."""
    index: int = 0
    parts: int = 1

    def cut(self, whole: Tensor) -> Tensor:
        """The part out of the whole."""
        if self.dim is None:
            return whole
        each = -(-whole.shape[self.dim] // self.parts)
        begin = min(self.index * each, whole.shape[self.dim])
        return whole.narrow(self.dim, begin, min(each, whole.shape[self.dim] - begin))

    def gather(self, own: Tensor, shape: Sequence[int], group: dist.ProcessGroup | None) -> Tensor:
        """The whole, of this shape; all shards call it with their parts."""
        if self.dim is None:
            return own
        size = shape[self.dim]
        each = -(-size // self.parts)
        rows = own.movedim(self.dim, 0)
        padded = rows.new_zeros((each, *rows.shape[1:]))
        padded[: rows.shape[0]] = rows
        gathered = rows.new_empty((self.parts * each, *rows.shape[1:]))
        dist.all_gather_single(gathered, padded, group=group)
        return gathered[:size].movedim(0, self.dim).contiguous()


def part_of(parameter: Tensor) -> Part:
    """Which part of a parameter this rank holds."""
    if not is_distributed(parameter):
        return Part()
    from torch.distributed.tensor import Shard  # noqa: PLC0415

    mesh, (placement,) = parameter.device_mesh, parameter.placements
    dim = placement.dim % parameter.ndim if isinstance(placement, Shard) else None
    return Part(dim, mesh.get_local_rank(), mesh.size())


def is_distributed(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether a tensor is one of torch's distributed ones, without loading them to know it."""
    return hasattr(tensor, "placements")


def own_parameter(parameter: nn.Parameter) -> nn.Parameter:
    """A plain parameter on the storage of what this rank holds of one."""
    if not is_distributed(parameter):
        return parameter
    own = parameter.to_local().detach()
    return nn.Parameter(own, requires_grad=parameter.requires_grad)


def own_gradient(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of what this rank holds of a parameter; all shards call it."""
    if not (is_distributed(parameter) and is_distributed(gradient)):
        return gradient
    return gradient.redistribute(placements=parameter.placements).to_local()


def split_layer(
    layer: nn.Module, split: TensorSplit, mesh: "DeviceMesh", *, sequence_parallel: bool
) -> None:
    """Leave of a layer, which all shards have built alike, this rank's part."""
    from torch.distributed.tensor.parallel import parallelize_module  # noqa: PLC0415

    takes_parts = sequence_parallel and split.takes_parts
    styles = {}
    for name, kind in split.modules.items():
        module = layer.get_submodule(name)
        if isinstance(module, Dropout):
            if kind is Split.HEADS or takes_parts:
                dim = _HEADS if kind is Split.HEADS else _POSITIONS
                module.take_part(dim, mesh.get_local_rank(), mesh.size())
        elif kind is not Split.STREAM or takes_parts:
            gives_parts = sequence_parallel and split.gives_parts
            styles[name] = _style(kind, takes_parts=takes_parts, gives_parts=gives_parts)
    # No rank's weights are sent to the others: all were drawn by layer name.
    parallelize_module(layer, mesh, styles, src_data_rank=None)


def _style(kind: Split, *, takes_parts: bool, gives_parts: bool) -> "ParallelStyle":
    from torch.distributed.tensor import Replicate, Shard  # noqa: PLC0415
    from torch.distributed.tensor.parallel import (  # noqa: PLC0415
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
    )

    whole, part = Replicate(), Shard(_POSITIONS)
    entering = part if takes_parts else whole
    if kind is Split.COLUMNS:
        return ColwiseParallel(input_layouts=entering)
    if kind is Split.GATHERED_COLUMNS:
        return ColwiseParallel(input_layouts=entering, output_layouts=whole)
    if kind is Split.ROWS:
        return RowwiseParallel(output_layouts=part if gives_parts else whole)
    if kind is Split.INPUT:
        return PrepareModuleInput(input_layouts=entering, desired_input_layouts=whole)
    if kind is Split.HEAD_NORM:  # heads are to it what positions are to a norm of the stream
        return SequenceParallel(sequence_dim=_HEADS_OF_NORMS, use_local_output=True)
    return SequenceParallel(sequence_dim=_POSITIONS)


def take_positions(whole: Tensor, mesh: "DeviceMesh") -> Tensor:
    """What this shard has of the positions of a stream that is whole on every shard."""
    from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: PLC0415

    stream = DTensor.from_local(whole, mesh, [Replicate()], run_check=False)
    return stream.redistribute(placements=[Shard(_POSITIONS)]).to_local()


def gather_positions(part: Tensor, mesh: "DeviceMesh") -> Tensor:
    """The whole stream, on every shard, of which each has a part of the positions."""
    from torch.distributed.tensor import DTensor, Replicate, Shard  # noqa: PLC0415

    stream = DTensor.from_local(part, mesh, [Shard(_POSITIONS)], run_check=False)
    return stream.redistribute(placements=[Replicate()]).to_local()
