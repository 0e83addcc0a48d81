"""Modules to be cut: a branching one with skips, and a chain."""

import torch
from torch import Tensor, nn

SAMPLES, POSITIONS, WIDTH, VOCABULARY = 2, 5, 8, 11


class Skips(nn.Module):
    """Down and up with a skip from each way down to its way up; tied, masked, with dropout.

    Takes a mask with a dimension of samples and positions without, and static arguments.
    """

    def __init__(self, dropout: float = 0.0, steps: int = 3) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.down = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(steps)])
        self.act = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(dropout)
        self.up = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(steps)])
        self.out = nn.Linear(WIDTH, VOCABULARY)
        self.out.weight = self.tokens.weight

    def forward(self, tokens, mask, positions, *, scale=1.0, mode="add", nothing=None):
        assert nothing is None
        hidden = self.tokens(tokens) + positions
        steps = torch.arange(hidden.shape[1], device=hidden.device)
        hidden = hidden + 0.1 * steps[:, None]
        kept = []
        for layer in self.down:
            hidden = self.act(layer(hidden))
            kept.append(hidden)
        left, right = hidden.masked_fill(~mask[..., None], 0.0).chunk(2, -1)
        hidden = self.dropout(torch.cat([right, left], -1))
        for layer, skipped in zip(self.up, reversed(kept), strict=True):
            more = skipped * scale if mode == "add" else 0.0
            hidden = torch.tanh(layer(hidden)) + more
        return self.out(hidden)


def skips_inputs(seed: int = 0) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Tokens, mask and positions, and targets."""
    generator = torch.Generator().manual_seed(seed)
    shape = (SAMPLES, POSITIONS)
    tokens, targets = (torch.randint(VOCABULARY, shape, generator=generator) for _ in range(2))
    mask = torch.rand(shape, generator=generator) > 0.2
    positions = torch.linspace(-1, 1, POSITIONS * WIDTH).view(POSITIONS, WIDTH)
    return (tokens, mask, positions), targets


def seeded(make, seed: int = 0) -> nn.Module:
    """A module whose weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()
