"""A time axis: where its ticks stand and what they say."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Seconds from the start of a timeline to the horizontal place of a picture."""

    left: float
    width: float
    end_seconds: float

    def x(self, seconds: float) -> float:
        """The place of a moment; what lies outside the window is at its edge."""
        inside = min(max(seconds, 0.0), self.end_seconds)
        return self.left + self.width * inside / self.end_seconds

    def pixels(self, seconds: float) -> float:
        """How wide a duration is."""
        return self.width * seconds / self.end_seconds


def ticks(end_seconds: float, most: int = 12) -> list[tuple[float, str]]:
    """Moments of 1, 2 or 5 times a power of ten from 0 to the end, with their text."""
    rough = end_seconds / most
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(f * magnitude for f in (1, 2, 5, 10) if f * magnitude >= rough * (1 - 1e-9))
    factor, unit = _unit(end_seconds)
    moments = [index * step for index in range(math.floor(end_seconds / step * (1 + 1e-9)) + 1)]
    return [(moment, f"{moment / factor:.6g} {unit}" if moment else "0") for moment in moments]


def _unit(seconds: float) -> tuple[float, str]:
    """The largest unit of which there is at least one."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return factor, unit
    return 1e-9, "ns"
