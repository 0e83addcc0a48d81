"""Steps from the fastest options of layers to those that need least memory, best bargain first.

They solve the linear relaxation of choosing one option for each layer within a memory limit
(a multiple-choice knapsack; Sinha and Zoltners, 1979): take steps in order of time paid for each
byte saved until the memory fits. With the last step cut to what is needed this bounds the time
from below, with the whole step it is a choice that fits.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.stage_costs.fixed_point import Units

_DIGITS = 2.0**40
ORDER_ROUNDING = 2.0**-36
"""By what the order of the steps may be off: more than rounding ratios can do."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The fastest options, and steps to others, best bargain first."""

    start: NDArray[np.int64]
    """Option of each layer."""
    layer: NDArray[np.int64]
    source: NDArray[np.int64]
    target: NDArray[np.int64]

    def same_as(self, other: "Steps") -> bool:
        """Whether both start alike and take the same steps in one order."""
        return all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in self.__slots__
        )


def steps_between(times: Units, memory: NDArray[Any]) -> Steps:
    """The steps along the lower convex hull of each layer's (memory, time) points."""
    rows = np.arange(len(times))
    fastest = times == times.min(axis=1, keepdims=True)
    start = now = np.where(fastest, memory, np.inf).argmin(axis=1)
    found: list[tuple[NDArray[np.int64], ...]] = []
    ratios = []
    for _ in range(times.shape[1] - 1):
        paid = (times - times[rows, now][:, None]).astype(np.float64)
        saved = memory[rows, now][:, None] - memory
        ratio = np.full(saved.shape, np.inf)
        np.divide(paid, saved, out=ratio, where=saved > 0)
        best = ratio == ratio.min(axis=1, keepdims=True)
        chosen = np.where(best & (saved > 0), saved, 0).argmax(axis=1)
        is_step = np.flatnonzero(saved[rows, chosen] > 0)
        found.append((is_step, now[is_step], chosen[is_step]))
        ratios.append(ratio[is_step, chosen[is_step]])
        now = np.where(saved[rows, chosen] > 0, chosen, now)
    if not found:
        empty = np.zeros(0, np.int64)
        return Steps(start, empty, empty, empty)
    # Ratios that differ by rounding only are equal, so that alike layers keep one order.
    order = np.argsort(_rounded(np.concatenate(ratios)), kind="stable")
    layer, source, target = (np.concatenate(part)[order] for part in zip(*found, strict=True))
    return Steps(start, layer, source, target)


def _rounded(ratios: NDArray[np.float64]) -> NDArray[np.float64]:
    fraction, exponent = np.frexp(ratios)
    rounded: NDArray[np.float64] = np.ldexp(np.rint(fraction * _DIGITS), exponent)
    return rounded
