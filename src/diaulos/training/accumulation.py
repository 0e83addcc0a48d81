"""Gradients summed up over the microbatches of a batch."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from diaulos.training.precision import Precision
from diaulos.training.sharding import own_gradient


class Accumulator:
    """The gradients of the weights of one bank.

    They are summed in the numbers that weights are updated in. Where those are the numbers that
    are computed with, autograd does so; in low precision each microbatch's gradient is added to a
    sum of its own right after it is there.
    """

    def __init__(self, weights: Sequence[nn.Parameter], precision: Precision) -> None:
        self._weights = weights
        self._sums: list[Tensor | None] | None = None
        if precision.has_masters:
            self._sums = [None] * len(weights)
            for place, weight in enumerate(weights):
                add = partial(_add, self._sums, place, precision.updating)
                weight.register_post_accumulate_grad_hook(add)  # type: ignore[no-untyped-call]

    def take(self) -> list[Tensor | None]:
        """What this rank holds of each gradient, None where none came; they begin anew.

        All shards of a replica call it.
        """
        gradients: list[Tensor | None] = []
        for place, weight in enumerate(self._weights):
            summed = weight.grad if self._sums is None else self._sums[place]
            gradients.append(None if summed is None else own_gradient(weight, summed))
            weight.grad = None
        if self._sums is not None:
            self._sums[:] = [None] * len(self._sums)
        return gradients


def _add(sums: list[Tensor | None], place: int, dtype: torch.dtype, weight: Tensor) -> None:
    assert weight.grad is not None
    gradient, so_far = weight.grad.to(dtype), sums[place]
    sums[place] = gradient if so_far is None else so_far.add_(gradient)
    weight.grad = None
