"""Figures that fit best: changed one at a time for as long as that helps."""

import math
from collections.abc import Callable, Sequence

_STEPS = (2.0, 1.3, 1.1, 1.03, 1.01)
"""By which a figure is changed, the large ones first."""
_LEAST_GAIN = 1e-4
"""Of the error, for a change to count."""


def descend(start: Sequence[float], error: Callable[[Sequence[float]], float]) -> list[float]:
    """Figures above 0 near which no change of one alone lessens the error."""
    best, least = list(start), error(start)
    for step in _STEPS:
        improved = True
        while improved:
            improved = False
            for position in range(len(best)):
                for factor in (step, 1 / step):
                    trial = [*best]
                    trial[position] *= factor
                    found = error(trial)
                    if found < least * (1 - _LEAST_GAIN):
                        best, least, improved = trial, found, True
    return best


def squared_logs(ratios: Sequence[float]) -> float:
    """The sum of the squares of the ratios' logarithms: 0 where all are 1."""
    return math.fsum(math.log(ratio) ** 2 for ratio in ratios)
