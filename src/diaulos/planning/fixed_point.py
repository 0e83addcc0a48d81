"""Amounts as whole numbers of a tiny unit, so that sums and differences of them are exact.

Costs of stages are differences of sums over downsets. In floating point such a difference depends
on what was summed before; in whole numbers equal stages cost the same wherever they stand, and
comparisons of costs need no tolerance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_UNITS = 2.0**60
"""No sum of a problem's amounts is larger."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Whole numbers of one unit."""

    unit: float

    def units(self, amounts: ArrayLike) -> NDArray[np.int64]:
        """Amounts in units, rounded to the nearest."""
        return np.rint(np.asarray(amounts, np.float64) / self.unit).astype(np.int64)


def fixed_point_below(largest: float) -> FixedPoint:
    """The finest unit with which sums up to `largest` stay far from the end of 64 bits."""
    return FixedPoint(largest / MOST_UNITS or 1.0)
