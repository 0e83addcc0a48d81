"""Which positions attend to which: masks that every block makes for itself.

They follow from shapes and from the padding, a row of booleans for each sample, so that making
them again is cheaper than to pass them on.
"""

import torch
from torch import Tensor


def causal(hidden: Tensor, padding: Tensor | None, window: int | None) -> Tensor | None:
    """True where a position may attend to another, [samples or 1, 1, positions, positions].

    To itself and to what stands before it, at most `window` positions and without padding; None
    where that is all that stands before. A row of padding alone attends to itself.
    """
    length = hidden.shape[1]
    if padding is None and (window is None or window >= length):
        return None
    positions = torch.arange(length, device=hidden.device)
    distance = positions[:, None] - positions
    allowed = distance >= 0
    if window is not None:
        allowed = allowed & (distance < window)
    allowed = allowed[None, None]
    if padding is None:
        return allowed
    return (allowed & padding.bool()[:, None, None, :]) | (distance == 0)


def both_ways(padding: Tensor | None) -> Tensor | None:
    """True where any position may attend to another, [samples, 1, 1, positions]; None for all."""
    return None if padding is None else padding.bool()[:, None, None, :]
