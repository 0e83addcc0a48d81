"""What every family of Hugging Face models says of its layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLayout:
    """A layer of a model: how it is made of the model's modules, and where these stand in it."""

    name: str
    make: Callable[[PreTrainedModel], nn.Module]
    """From the model with one block; survives pickling."""
    places: Mapping[str, str]
    """Modules or parameters of the layer, and where the whole model has them."""
    block: str | None = None
    """How the model's tensor-parallel plan calls blocks like it; None for other layers."""


class Inner(nn.Module):
    """A module of the model that takes and gives one tensor, as it is."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Tensor) -> Tensor:
        """What the module gives."""
        given: Tensor = self.inner(hidden)
        return given


def inner_of(name: str, template: PreTrainedModel) -> nn.Module:
    """The module of this name as a layer."""
    return Inner(template.get_submodule(name))


def block_class(template: PreTrainedModel, blocks: str) -> Callable[..., nn.Module]:
    """The class of the blocks in the list of this name."""
    return type(template.get_submodule(f"{blocks}.0"))
