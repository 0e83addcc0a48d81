"""Any module as a chain of layers: its graph, as `torch.export` traces it, cut into runs.

A layer takes every tensor that it or a later layer needs of what came before, and gives what later
layers need: what skips layers is passed on by them. So there are edges between neighbours alone,
each with one agreed form, and gradients of what is used in several places add up on the way back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from diaulos.errors import InputError
from diaulos.models.exported.cut import cut_graph
from diaulos.models.exported.sequence import layers_of
from diaulos.models.exported.trace import trace
from diaulos.models.layers import LayeredModel, Reduction, Stream


def exported(
    module: nn.Module,
    arguments: tuple[Any, ...],
    targets: Tensor,
    *,
    loss: Callable[..., Tensor],
    keywords: Mapping[str, Any] | None = None,
    cuts: Sequence[str] = (),
    tokens_per_sample: int = 1,
    reduction: Reduction = Reduction.MEAN,
) -> LayeredModel:
    """A module as layers, for microbatches of the form of an example.

    The tensors among the arguments and keywords are a microbatch's inputs, in this order; all else
    is static. A layer begins where one of the modules named by `cuts` first runs: by default, each
    child of the module, and each of the children of lists and sequences. Weights are those that
    the module has, under its own names behind the layer's. `loss` and the rest are those of
    `LayeredModel`. A module that cannot be traced or cut is an `InputError`.
    """
    graph = trace(module, arguments, dict(keywords or {}))
    layers = cut_graph(graph, module, list(cuts) or _children(module), explicit=bool(cuts))
    inputs = tuple(t for t in tree_leaves((arguments, keywords)) if isinstance(t, Tensor))
    return layers_of(
        layers,
        loss=loss,
        example=_Example(inputs, targets),
        tokens_per_sample=tokens_per_sample,
        reduction=reduction,
    )


@dataclass(frozen=True)
class _Example:
    """The microbatch that was traced."""

    inputs: Stream
    targets: Tensor

    def __call__(self, microbatch_size: int) -> tuple[Stream, Tensor]:
        traced = self.targets.shape[0]
        if microbatch_size != traced:
            raise InputError(
                f"microbatch_size is {microbatch_size}",
                f"the module was exported for microbatches of {traced}",
                "export it with arguments of this size",
            )
        return self.inputs, self.targets


def _children(module: nn.Module) -> list[str]:
    names = []
    for name, child in module.named_children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            names += [f"{name}.{index}" for index, _ in child.named_children()]
        else:
            names.append(name)
    return names
