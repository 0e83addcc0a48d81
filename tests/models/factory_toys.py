"""Factories that the tests of `module:factory` name."""

from typing import Any

import torch
from torch import Tensor, nn

from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.layers import LayeredModel


class Join(nn.Module):
    """Takes three tensors, and a number that is not one."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(12, 1)

    def forward(self, left: Tensor, right: Tensor, stem: Tensor, scale: float) -> Tensor:
        mixed: Tensor = self.mix(torch.cat((left * scale, right, stem), dim=-1))
        return mixed


class Branches(nn.Module):
    """Two branches from a stem, which reaches the end as well."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 6)
        self.left = nn.Sequential(nn.Linear(6, 3), nn.ReLU())
        self.right = nn.Linear(6, 3)
        self.join = Join()

    def forward(self, entering: Tensor, scale: float) -> Tensor:
        stem = self.stem(entering)
        joined: Tensor = self.join(self.left(stem), self.right(stem), stem, scale)
        return joined


def branches() -> tuple[nn.Module, tuple[Any, ...]]:
    return Branches(), (torch.zeros(4, 2), 0.5)


def chain() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), torch.zeros(5, 2)


def layered() -> LayeredModel:
    return gpt(GPTConfig(layers=1, width=4, heads=1, sequence_length=2))


def number() -> int:
    return 3


def without_inputs() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.Linear(2, 2), ()
