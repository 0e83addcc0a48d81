"""The optimizers that a run file can name."""

from dataclasses import dataclass
from functools import partial

import torch

from diaulos.errors import InputError
from diaulos.training.stage_optimizer import OptimizerFactory


def _check_rate(learning_rate: float) -> None:
    if not learning_rate > 0:
        raise InputError(f"learning_rate is {learning_rate}", "it must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Adam with decoupled weight decay."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    fused: bool = False

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas is {list(self.betas)}", "both must be at least 0 and below 1")

    @property
    def state_bytes_per_parameter_byte(self) -> float:
        """First and second moment."""
        return 2.0

    def factory(self) -> OptimizerFactory:
        """What builds it over a stage's parameters."""
        return partial(
            torch.optim.AdamW,
            lr=self.learning_rate,
            betas=self.betas,
            weight_decay=self.weight_decay,
            fused=self.fused,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    learning_rate: float
    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}", "it must be at least 0 and below 1")

    @property
    def state_bytes_per_parameter_byte(self) -> float:
        """The momentum, where there is any."""
        return 1.0 if self.momentum else 0.0

    def factory(self) -> OptimizerFactory:
        """What builds it over a stage's parameters."""
        return partial(
            torch.optim.SGD,
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
