"""Amounts as whole numbers of a tiny unit, so that sums and differences of them are exact.

Costs of stages are differences of sums over downsets. In floating point such a difference depends
on what was summed before; in whole numbers equal stages cost the same wherever they stand, and
comparisons of costs need no tolerance.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Units = NDArray[np.int64]

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
    """The finest unit with which sums up to `largest` stay far from the end of 64 bits.

    Sums below 1e-289 count as nothing.
    """
    return FixedPoint(largest / MOST_UNITS or 1.0)


@dataclass(frozen=True, slots=True)
class LimitedFixedPoint:
    """Whole numbers for amounts under a limit; single amounts over it are merely too much.

    So the unit can be fine beside the limit, however large the amounts that do not fit are.
    """

    point: FixedPoint
    limit_amount: float

    @property
    def limit(self) -> int:
        """The limit in units, rounded down."""
        return int(min(self.limit_amount / self.point.unit, 2 * MOST_UNITS))

    def units(self, amounts: NDArray[np.float64]) -> NDArray[np.int64]:
        """Amounts in units, rounded to the nearest."""
        fitting = amounts <= self.limit_amount
        units = self.point.units(np.where(fitting, amounts, 0.0))
        return np.where(fitting, units, 2 * self.limit + 1)


def limited_fixed_point(limit: float, *, addends: int, total: float) -> LimitedFixedPoint:
    """The finest unit for sums of some addends, at most `total`, beside a limit."""
    largest = total if total <= limit else 2 * addends * limit
    return LimitedFixedPoint(fixed_point_below(largest), limit)
