"""How a layer of a Hugging Face model is built: of transformers' modules, one layer at a time."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from diaulos.models.huggingface.weights import WeightFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecipe:
    """Builds a layer of a Hugging Face model; survives pickling.

    Its weights are drawn as the model draws them, or read from files where there are some.
    """

    model_class: type[PreTrainedModel]
    config: PreTrainedConfig
    make: Callable[[PreTrainedModel], nn.Module]
    """From the model with one block, without numbers, to the layer, without numbers."""
    places: Mapping[str, str]
    """Modules or parameters of the layer, and where the whole model has them."""
    weights: WeightFolder | None = None

    def __call__(self) -> nn.Module:
        """The layer, on torch's default device."""
        template = self.template()
        with torch.device("meta"):
            layer = self.make(template)
        device = torch.get_default_device()
        if device.type == "meta":
            return layer
        layer.to_empty(device=device)
        with torch.no_grad():
            layer.apply(template._init_weights)  # noqa: SLF001 - the model's own way to draw
            if self.weights is not None:
                for name, parameter in layer.named_parameters():
                    parameter.copy_(self.weights.tensor(self.stored_name(name)))
        return layer

    def template(self) -> PreTrainedModel:
        """The model with one block of each kind, without numbers."""
        with torch.device("meta"):
            return self.model_class(one_block(self.config))

    def stored_name(self, parameter: str) -> str:
        """The name in the whole model, and in its files, of a parameter of the layer."""
        for own, place in self.places.items():
            if parameter == own:
                return place
            if parameter.startswith(own + "."):
                return place + parameter.removeprefix(own)
        raise KeyError(parameter)


def one_block(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config of the model with one block of each kind."""
    small = copy.deepcopy(config)
    small.num_hidden_layers = 1
    if getattr(small, "num_decoder_layers", None) is not None:
        small.num_decoder_layers = 1
    if getattr(small, "layer_types", None):
        small.layer_types = small.layer_types[:1]
    return small


class Unrounded(nn.Module):
    """A module whose buffers stay in their own type whatever the layer computes in.

    Rotary frequencies in 16 bits would turn far positions by wrong angles.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *arguments: Any) -> Any:
        """What the module gives."""
        return self.inner(*arguments)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> "Unrounded":  # noqa: FBT001, FBT002
        kept = [
            (module, name, buffer)
            for module in self.inner.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for module, name, buffer in kept:
            moved = getattr(module, name)
            if moved.dtype is not buffer.dtype:
                setattr(module, name, buffer.to(moved.device))
        return self
