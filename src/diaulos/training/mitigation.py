"""What can be done against gradients that come an update late, all of it off by default.

Under 2BW the gradient of batch t is taken at the weights W(t-1) and applied to W(t). Most is lost
by that early and at high learning rates.
"""

from dataclasses import dataclass

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayMitigation:
    """The remedies of a run."""

    flush_updates: int = 0
    """The first so many updates are those of 1F1B with a flush, whose gradients come on time."""
    extrapolated_weights: bool = False
    """Whether batch t computes with W(t-1) + (W(t-1) - W(t-2)), a linear prediction of W(t), as
    SpecTrain predicts (Chen, Yang and Cheng, 2018). Where there are no masters it takes as many
    bytes as the weights: these are kept beside what is predicted from them."""
    learning_rate_updates: int = 0
    """Until this update the learning rate is divided by (1 + d) ** (1 - t / updates), for a
    gradient of d updates ago: the first technique of PipeMare (Yang et al., 2021), whose delay
    counts the step itself."""

    def __post_init__(self) -> None:
        for name in ("flush_updates", "learning_rate_updates"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 0")

    @property
    def is_any(self) -> bool:
        """Whether there is a remedy at all."""
        return self != DelayMitigation()

    def flushes(self, update: int) -> bool:
        """Whether the gradient of an update, counted from 0, comes on time."""
        return update < self.flush_updates

    def predicts(self, update: int) -> bool:
        """Whether an update writes a prediction, not the weights that it makes.

        Not where the next batch still computes with these.
        """
        return self.extrapolated_weights and not self.flushes(update + 1)

    def rate_share(self, update: int, delay: int) -> float:
        """What share of its learning rate an update takes whose gradient is so many updates old."""
        if update >= self.learning_rate_updates:
            return 1.0
        return float((1 + delay) ** (update / self.learning_rate_updates - 1))
