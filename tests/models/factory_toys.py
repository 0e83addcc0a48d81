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


class SmallBlock(nn.Module):
    """Attention by torch's own function."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        samples, positions, width = hidden.shape
        joint = self.joint(self.norm(hidden)).view(samples, positions, 3, 4, width // 4)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        added: Tensor = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        return added


class Tokens(nn.Module):
    """An embedding, blocks in a list, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.blocks = nn.ModuleList(SmallBlock(16) for _ in range(3))
        self.scores = nn.Linear(16, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return nn.functional.cross_entropy(self.scores(hidden).flatten(0, 1), tokens.flatten())


def tokens() -> tuple[nn.Module, Tensor]:
    return Tokens(), torch.zeros(2, 8, dtype=torch.long)


def chain() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), torch.zeros(5, 2)


def layered() -> LayeredModel:
    return gpt(GPTConfig(layers=1, width=4, heads=1, sequence_length=2))


def number() -> int:
    return 3


def without_inputs() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.Linear(2, 2), ()
