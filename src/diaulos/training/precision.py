"""In which numbers a run computes, and in which it keeps the weights that are updated."""

from enum import Enum

import torch
from torch import Tensor


class Precision(Enum):
    """The numbers of a run; the value is what run files call them."""

    FLOAT64 = "float64"
    """For comparisons; nothing else needs it."""
    FLOAT32 = "float32"
    BF16 = "bf16"
    FP16 = "fp16"
    """With a loss scale, since gradients would vanish below its smallest numbers."""

    def __init__(self, name: str) -> None:
        low = {"bf16": torch.bfloat16, "fp16": torch.float16}
        self.updating = torch.float64 if name == "float64" else torch.float32
        """Of the weights that the optimizer steps, of its state, of gradients and losses."""
        self.computing = low.get(name, self.updating)
        """Of weights that compute, activations and what passes between stages."""
        self.has_masters = name in low
        """Whether the weights that are updated are other ones than those that compute."""
        self.is_scaled = name == "fp16"
        """Whether the loss is scaled."""

    def computed(self, tensor: Tensor) -> Tensor:
        """A tensor of data as the layers take it; whole numbers stay what they are."""
        return tensor.to(self.computing) if tensor.is_floating_point() else tensor

    def updated(self, tensor: Tensor) -> Tensor:
        """A tensor as losses are computed of it; whole numbers stay what they are."""
        return tensor.to(self.updating) if tensor.is_floating_point() else tensor
