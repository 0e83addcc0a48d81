"""What stages are held against."""

from dataclasses import dataclass
from fractions import Fraction

_MOST_TIME = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """An amount of time in units that stages may take, or (`strict`) must stay below.

    Without a flush it is the time per sample of a stage, with one its share of the batch beside
    fill and drain: m*U - L + R of `pipelining`.
    """

    time: Fraction
    strict: bool = False

    def whole(self, factor: int) -> int:
        """The most whole units that are within `factor` times the threshold."""
        numerator, denominator = self.time.numerator * factor, self.time.denominator
        most = (numerator - 1) // denominator if self.strict else numerator // denominator
        return min(most, _MOST_TIME)
