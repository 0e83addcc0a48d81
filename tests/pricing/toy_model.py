"""A small model whose bytes can be counted by hand; a module of its own, since ranks import it."""

from functools import partial

import torch
from torch import Tensor, nn

from diaulos.models.layers import LayeredModel, LayerSpec

WIDTH, HIDDEN, SAMPLES, BYTES = 8, 32, 4, 4


def summed_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).sum()


def example(microbatch_size: int) -> tuple[Tensor, Tensor]:
    return torch.ones(microbatch_size, WIDTH), torch.zeros(microbatch_size, WIDTH)


def toy_model() -> LayeredModel:
    """Linear, GELU, and a linear layer of two views, with a squared error."""
    return LayeredModel(
        layers=(
            LayerSpec(name="wide", build=partial(nn.Linear, WIDTH, HIDDEN)),
            LayerSpec(name="gelu", build=nn.GELU),
            LayerSpec(name="narrow", build=partial(nn.Linear, HIDDEN, WIDTH)),
        ),
        loss=summed_squares,
        example=example,
        tokens_per_sample=WIDTH,
        settings={"model": "toy"},
    )
