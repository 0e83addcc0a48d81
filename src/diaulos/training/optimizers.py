"""The optimizers that a run file can name: torch's own, and Muon for matrices with AdamW beside."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from diaulos.errors import InputError
from diaulos.training.muon import MuonWithAdamW

OptionValue = bool | float | str | tuple[float, ...]


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

    def factory(self) -> partial[torch.optim.AdamW]:
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

    def factory(self) -> partial[torch.optim.SGD]:
        """What builds it over a stage's parameters."""
        return partial(
            torch.optim.SGD,
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchOptimizer:
    """An optimizer of `torch.optim` by its name in small letters, with torch's own options."""

    name: str
    learning_rate: float
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Those left out are torch's, but for AdamW and SGD, where they are those of the classes
    here."""

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        known = torch_optimizers()
        if self.name not in known:
            raise InputError(
                f"there is no optimizer {self.name!r}", f"there are {', '.join(known)} and muon"
            )
        _check_options(known[self.name], self.factory().keywords)

    @property
    def is_elementwise(self) -> bool:
        """Whether a part of a parameter is updated as it is within the whole."""
        return self.name != "adafactor"

    def factory(self) -> partial[Optimizer]:
        """What builds it over a stage's parameters."""
        options: dict[str, Any] = {
            **self._defaults(),
            "lr": self.learning_rate,
            **self.options,
        }
        return partial(torch_optimizers()[self.name], **options)

    def _defaults(self) -> Mapping[str, Any]:
        own: type[AdamW | SGD] | None = {"adamw": AdamW, "sgd": SGD}.get(self.name)
        return {} if own is None else own(learning_rate=self.learning_rate).factory().keywords


@dataclass(frozen=True, slots=True, kw_only=True)
class Muon:
    """Muon (Jordan et al., 2024) for the matrices of a model, and AdamW for all other weights."""

    learning_rate: float
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Those of `torch.optim.Muon`."""
    others: TorchOptimizer
    layers_of_others: tuple[str, ...]
    """Layers whose matrices are not Muon's either: embeddings and scores."""

    def __post_init__(self) -> None:
        _check_rate(self.learning_rate)
        _check_options(torch.optim.Muon, {"lr": self.learning_rate, **self.options})
        if self.others.name != "adamw":
            raise InputError(f"beside Muon stands {self.others.name}", "it must be adamw")

    @property
    def is_elementwise(self) -> bool:
        """Whether a part of a parameter is updated as it is within the whole."""
        return False

    def factory(self) -> partial[MuonWithAdamW]:
        """What builds it over a stage's parameters."""
        return partial(
            MuonWithAdamW,
            layers_of_adamw=self.layers_of_others,
            muon={"lr": self.learning_rate, **self.options},
            adamw=self.others.factory().keywords,
        )


def torch_optimizers() -> dict[str, type[Optimizer]]:
    """Those that torch has for dense parameters, by their names in small letters.

    Not L-BFGS, which computes a batch several times for one step, nor those for sparse gradients.
    Muon takes matrices alone and is not among them.
    """
    found = {name.lower(): getattr(torch.optim, name) for name in sorted(torch.optim.__all__)}
    left_out = ("optimizer", "lbfgs", "sparseadam", "muon")
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, type) and issubclass(each, Optimizer) and name not in left_out
    }


def _check_options(optimizer: type[Optimizer], options: Mapping[str, Any]) -> None:
    """Refuse options that torch's optimizer has not, or values that it does not take."""
    known = [name for name in signature(optimizer).parameters if name not in ("params", "lr")]
    for name in options:
        if name not in ("lr", *known):
            raise InputError(
                f"{optimizer.__name__} has no option {name!r}",
                f"its options are {', '.join(known)}",
            )
    try:
        optimizer([Parameter(torch.zeros(1, 1))], **options)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{optimizer.__name__} refuses its options", str(error)) from None
