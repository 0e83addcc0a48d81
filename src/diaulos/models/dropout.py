"""Dropout that leaves out the same entries however a tensor is split over shards."""

import torch
from torch import Tensor, nn

from diaulos.errors import InputError


class Dropout(nn.Module):
    """Leaves out a share of the entries while training, and scales the others up.

    The mask is drawn for the whole tensor also where this shard has only a part of it: all shards
    draw from the same random state, and each takes its own part.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not 0 <= share < 1:
            raise InputError(f"dropout is {share}", "it must be at least 0 and below 1")
        self.share = share
        self._dim, self._index, self._parts = 0, 0, 1

    @property
    def is_active(self) -> bool:
        """Whether anything is left out now."""
        return self.training and self.share > 0

    def take_part(self, dim: int, index: int, parts: int) -> None:
        """Expect the part of this index, of so many equal ones along a dimension."""
        self._dim, self._index, self._parts = dim, index, parts

    def forward(self, entering: Tensor) -> Tensor:
        """The input where nothing is left out, else its product with the mask."""
        if not self.is_active:
            return entering
        size = entering.shape[self._dim]
        whole = list(entering.shape)
        whole[self._dim] = size * self._parts
        kept = torch.empty(whole, dtype=entering.dtype, device=entering.device)
        kept.bernoulli_(1 - self.share).div_(1 - self.share)
        return entering * kept.narrow(self._dim, self._index * size, size)
