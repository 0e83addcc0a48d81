"""Which kernels are matrix products, and of what shape."""

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from diaulos.models.traced.tape import ProductShape

WeightOf = Callable[[Tensor], int | None]
"""The key of a tensor that is a parameter, None of others."""


def product_shape(
    name: str, given: Sequence[Tensor], made: Sequence[Tensor], weight_of: WeightOf
) -> ProductShape | None:
    """The product that a kernel computes; None if it is none. Weights are on the right."""
    if name in ("mm", "bmm"):
        return _product(given[0], given[1], weight_of)
    if name in ("addmm", "baddbmm"):
        return _product(given[1], given[2], weight_of)
    if name == "_grouped_mm":
        return _grouped(given[0], given[1], made[0], weight_of)
    if name == "convolution":
        return _convolution(given[1], made[0], weight_of)
    return None


def _product(left: Tensor, right: Tensor, weight_of: WeightOf) -> ProductShape:
    """Of matrices or of equally long stacks of them."""
    rows, inner = left.shape[-2:]
    columns = right.shape[-1]
    weight = weight_of(right)
    if weight is None and weight_of(left) is not None:
        weight, rows, columns = weight_of(left), columns, rows
    count = left.shape[0] if left.dim() == 3 else 1
    return ProductShape(
        rows=rows, inner=inner, columns=columns, count=count, weight=weight,
        stacked=weight is not None and count > 1,
    )  # fmt: skip


def _grouped(left: Tensor, right: Tensor, output: Tensor, weight_of: WeightOf) -> ProductShape:
    """Rows that are sorted by expert, of which each has as many on average."""
    if right.dim() == 2:  # the gradients of the weights, which sum over the rows
        count, rows, columns = output.shape
        return ProductShape(
            rows=rows, inner=left.shape[1] // count, columns=columns, count=count, stacked=True
        )
    count, inner, columns = right.shape
    return ProductShape(
        rows=left.shape[0] / count,
        inner=inner,
        columns=columns,
        count=count,
        weight=weight_of(right),
        stacked=True,
    )


def _convolution(weights: Tensor, output: Tensor, weight_of: WeightOf) -> ProductShape:
    """Of all places with all that the kernel sees there."""
    channels, inner = weights.shape[0], math.prod(weights.shape[1:])
    places = output.numel() // channels
    return ProductShape(rows=places, inner=inner, columns=channels, weight=weight_of(weights))
