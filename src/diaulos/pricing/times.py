"""The seconds of a model's layers, as a rank in training spends them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from diaulos.pricing.chain import Chain
from diaulos.pricing.stopwatch import Stopwatch

MICROBATCHES_PER_BATCH = 4
"""Gradients are added to existing ones in all but the first, as in training."""

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of one microbatch, a number per layer."""

    forward_seconds: Seconds
    backward_seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainTimes:
    """What one process measured of a whole model."""

    plain: PassTimes
    recompute: PassTimes
    update_seconds: Seconds
    """A number per layer."""
    whole_model_seconds: float
    """Forward and backward of a microbatch as one graph, without marks between the layers."""


def measure_times(chain: Chain, repetitions: int) -> ChainTimes:
    """Means over the microbatches of all repetitions, after a short one that does not count.

    Plain, recomputed and whole microbatches take turns, so that a disturbance does not fall on one
    kind alone. All ranks of the process group measure together: each batch begins with a barrier.
    """
    _Laps(chain).repeat(microbatches=1)
    laps = _Laps(chain)
    for _ in range(repetitions):
        laps.repeat(MICROBATCHES_PER_BATCH)
    return ChainTimes(
        plain=laps.mean_pass(laps.plain),
        recompute=laps.mean_pass(laps.recompute),
        update_seconds=_mean(laps.update),
        whole_model_seconds=float(_mean(laps.whole)[0]),
    )


class _Laps:
    """Laps of the stopwatch, a list per microbatch or update."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.plain: list[list[float]] = []
        self.recompute: list[list[float]] = []
        self.whole: list[list[float]] = []
        self.update: list[list[float]] = []

    def repeat(self, microbatches: int) -> None:
        """A batch with each kind of microbatch in turn, and its update."""
        dist.barrier()
        for _ in range(microbatches):
            self.plain.append(self._timed(partial(self._chain.run_microbatch, recompute=False)))
            self.recompute.append(self._timed(partial(self._chain.run_microbatch, recompute=True)))
            self.whole.append(self._timed(self._chain.run_microbatch_whole))
        self.update.append(self._timed(self._chain.update))

    def mean_pass(self, laps: list[list[float]]) -> PassTimes:
        """The forward laps run from the first layer to the last, the backward laps back."""
        means = _mean(laps)
        layers = len(self._chain.modules)
        return PassTimes(forward_seconds=means[:layers], backward_seconds=means[layers:][::-1])

    def _timed(self, run: Callable[..., None]) -> list[float]:
        watch = Stopwatch(self._chain.device)
        run(watch=watch)
        return watch.laps()


def _mean(laps: list[list[float]]) -> Seconds:
    """The mean of each lap over the repetitions, one that took long counted as twice the median.

    Not the median: a step of training meets the slow laps too.
    """
    seconds = np.array(laps)
    mean: Seconds = np.minimum(seconds, 2 * np.median(seconds, axis=0)).mean(axis=0)
    return mean
