"""The loss scale of float16: a number for each batch, the same on every rank.

Small gradients vanish in float16, so the loss is multiplied by a scale and the gradients are
divided by it; gradients that overflow say that it is too large. Whether they did is found with the
norm, over all stages at once, and known when the batch is updated. Batches that are under way by
then keep the scale that they began with: that of batch t is what the decisions about the first
t - delay batches have made of it.
"""

import math
from dataclasses import dataclass, replace

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScaling:
    """How the scale goes: an overflow halves it, and so many updates without one double it."""

    initial: float = 2.0**16
    growth_updates: int = 2000

    def __post_init__(self) -> None:
        if not (self.initial >= 1 and math.frexp(self.initial)[0] == 0.5):
            raise InputError(
                f"initial is {self.initial}",
                "a loss scale is a power of two from 1 on, so that it changes no digit",
            )
        if self.growth_updates < 1:
            raise InputError(f"growth_updates is {self.growth_updates}", "it must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleState:
    """Where a scale stands after a number of decisions; what a checkpoint holds of it."""

    scales: tuple[float, ...]
    """After the last decisions, the newest last."""
    streak: int = 0
    """Updates since it changed last."""
    skipped: int = 0
    """Updates that were skipped since the run began."""


class LossScale:
    """The scale of each batch, as the decisions about earlier ones have made it."""

    def __init__(
        self,
        scaling: LossScaling,
        *,
        delay: int,
        decided: int = 0,
        state: ScaleState | None = None,
    ) -> None:
        """Begin with the first batch, or after so many decided ones with the state of then.

        `delay` is the number of updates that gradients come late.
        """
        self._scaling = scaling
        self._delay = delay
        self._decided = decided
        self.state = state or ScaleState(scales=(scaling.initial,))

    @property
    def skipped(self) -> int:
        """Updates that were skipped."""
        return self.state.skipped

    def of(self, batch: int) -> float:
        """The scale of a batch; it and all later ones may be asked for until it is decided."""
        decisions = max(batch - self._delay, 0)
        return self.state.scales[decisions - self._decided - 1]

    def decide(self, batch: int, *, overflowed: bool) -> None:
        """Note whether the gradients of a batch overflowed; again for the same batch is nothing."""
        if batch < self._decided:
            return
        self._decided += 1
        state = self.state
        streak, scale = (0 if overflowed else state.streak + 1), state.scales[-1]
        if overflowed:
            scale = max(scale / 2, 1.0)
        elif streak == self._scaling.growth_updates:
            streak, scale = 0, scale * 2
        self.state = replace(
            state,
            scales=(*state.scales, scale)[-self._delay - 2 :],
            streak=streak,
            skipped=state.skipped + overflowed,
        )
