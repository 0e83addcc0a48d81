"""Parameters spread over replicas: gathered layer by layer beside the computation (FSDP)."""

from collections.abc import Sequence
from dataclasses import dataclass

from diaulos.pricing.analytic.seconds import LayerSeconds, PassSeconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedLayer:
    """A layer whose parameters each replica has a share of."""

    seconds: LayerSeconds
    """Of its computation."""
    gather_seconds: float
    """Of all parameters, before the forward and again before the backward."""
    sum_seconds: float
    """Of all gradients, which are spread by it, after the backward."""


def sharded_stage_seconds(layers: Sequence[ShardedLayer]) -> LayerSeconds:
    """What a microbatch waits for in a forward and a backward through these layers.

    While a layer computes, the next one's parameters come, and backward also the gradients of the
    one before go; what takes longer than the computation is waited for, and so is the first
    gathering and the last sum, which nothing hides.
    """
    gathers = [layer.gather_seconds for layer in layers]
    sums = [layer.sum_seconds for layer in layers]
    forward = gathers[0] + _excess(
        [layer.seconds.forward.total for layer in layers], [*gathers[1:], 0.0]
    )
    beside = [
        gather + back
        for gather, back in zip([*gathers[:-1][::-1], 0.0], [0.0, *sums[:0:-1]], strict=True)
    ]
    backward = (
        gathers[-1]
        + _excess([layer.seconds.backward.total for layer in reversed(layers)], beside)
        + sums[0]
    )
    return LayerSeconds(
        forward=PassSeconds(compute=forward),
        backward=PassSeconds(compute=backward),
        weight_backward=0.0,
    )


def _excess(computing: Sequence[float], beside: Sequence[float]) -> float:
    """How much longer what runs beside a layer takes than the layer, summed."""
    return sum(max(b - c, 0.0) for c, b in zip(computing, beside, strict=True))
