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

    @property
    def computing(self) -> torch.dtype:
        """Of weights that compute, activations and what passes between stages."""
        return {
            Precision.FLOAT64: torch.float64,
            Precision.FLOAT32: torch.float32,
            Precision.BF16: torch.bfloat16,
            Precision.FP16: torch.float16,
        }[self]

    @property
    def updating(self) -> torch.dtype:
        """Of the weights that the optimizer steps, of its state, of gradients and losses."""
        return torch.float64 if self is Precision.FLOAT64 else torch.float32

    @property
    def has_masters(self) -> bool:
        """Whether the weights that are updated are other ones than those that compute."""
        return self.computing is not self.updating

    @property
    def is_scaled(self) -> bool:
        """Whether the loss is scaled."""
        return self is Precision.FP16

    def computed(self, tensor: Tensor) -> Tensor:
        """A tensor of data as the layers take it; whole numbers stay what they are."""
        return tensor.to(self.computing) if tensor.is_floating_point() else tensor
