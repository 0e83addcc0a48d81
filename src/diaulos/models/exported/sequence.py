"""A list or `nn.Sequential` of modules as the layers of a model."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch import Tensor, nn

from diaulos.models.layers import LayeredModel, LayerSpec, Reduction, Stream


def layers_of(
    modules: Sequence[nn.Module] | nn.Sequential | Mapping[str, nn.Module],
    *,
    loss: Callable[..., Tensor],
    example: Callable[[int], tuple[Tensor | Stream, Tensor]],
    tokens_per_sample: int = 1,
    reduction: Reduction = Reduction.MEAN,
) -> LayeredModel:
    """The modules as layers, in their order, with the weights that they have.

    Each takes what the one before gives, one tensor or several. Layers are called by their keys, or
    `layer_0` and so on. Modules that share a parameter get copies that are tied. Every rank must
    make the same modules: `diaulos train` calls a factory with the same random numbers everywhere.
    `loss`, `example` and the rest are those of `LayeredModel`.
    """
    named = _named(modules)
    return LayeredModel(
        layers=tuple(
            LayerSpec(name=name, build=partial(copy.deepcopy, module))
            for name, module in named.items()
        ),
        loss=loss,
        example=example,
        tokens_per_sample=tokens_per_sample,
        reduction=reduction,
        ties=_ties(named),
    )


def _named(
    modules: Sequence[nn.Module] | nn.Sequential | Mapping[str, nn.Module],
) -> dict[str, nn.Module]:
    if isinstance(modules, Mapping):
        return dict(modules)
    return {f"layer_{place}": module for place, module in enumerate(modules)}


def _ties(named: Mapping[str, nn.Module]) -> dict[str, str]:
    """Parameters that a module shares with one before it."""
    first: dict[int, str] = {}
    ties = {}
    for layer, module in named.items():
        for own, parameter in module.named_parameters():
            name = f"{layer}.{own}"
            owner = first.setdefault(id(parameter), name)
            if owner != name:
                ties[name] = owner
    return ties
