"""How the learning rate goes over a run, by the number of the update."""

import math
from dataclasses import dataclass

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateSchedule:
    """A linear warm-up, and then a constant rate or a cosine down to a share of it.

    Update t takes the rate of t, whatever version of the weights its gradient was computed with.
    """

    warm_up_updates: int = 0
    cosine_updates: int | None = None
    """By which update, counted from the start of the run, the cosine has reached its end; None for
    a constant rate."""
    final_share: float = 0.0
    """Of the full rate, at the end of the cosine."""

    def __post_init__(self) -> None:
        if self.warm_up_updates < 0:
            raise InputError(f"warm_up_updates is {self.warm_up_updates}", "it must be at least 0")
        if self.cosine_updates is not None and self.cosine_updates <= self.warm_up_updates:
            raise InputError(
                f"cosine_updates is {self.cosine_updates} and warm_up_updates is "
                f"{self.warm_up_updates}",
                "the cosine begins where the warm-up ends, and must end later",
                f"at least {self.warm_up_updates + 1} would do",
            )
        if not 0 <= self.final_share <= 1:
            raise InputError(f"final_share is {self.final_share}", "it must be between 0 and 1")

    def share(self, update: int) -> float:
        """What share of the optimizer's learning rate an update takes, counted from 0."""
        if update < self.warm_up_updates:
            return (update + 1) / self.warm_up_updates
        if self.cosine_updates is None:
            return 1.0
        span = self.cosine_updates - self.warm_up_updates
        done = min((update - self.warm_up_updates) / span, 1.0)
        return self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * done)) / 2
