"""Edges of a measured model go from who makes a tensor to who reads it."""

from functools import partial

import torch
from torch import Tensor, nn

from diaulos.models.layers import LayeredModel, LayerSpec
from diaulos.pricing.chain import Chain, adamw
from diaulos.pricing.dataflow import tensor_edges
from tests.pricing.toy_model import BYTES, HIDDEN, SAMPLES, WIDTH, toy_model


class Forked(nn.Module):
    """Makes one tensor and hands on what came in."""

    def forward(self, entering: Tensor) -> tuple[Tensor, Tensor]:
        return entering * 2, entering


class Beside(nn.Module):
    """Reads the first of two and hands on the second."""

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        return first + 1, second


class Joined(nn.Module):
    """Reads both."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return first * second


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.sum() + targets.sum()


def example(microbatch_size: int) -> tuple[Tensor, Tensor]:
    return torch.ones(microbatch_size, WIDTH), torch.zeros(microbatch_size)


def edges_of(model: LayeredModel) -> dict[tuple[int, int], int]:
    chain = Chain(model, microbatch_size=SAMPLES, optimizer=adamw, device=torch.device("cpu"))
    return tensor_edges(chain)


def layered(*modules: type[nn.Module]) -> LayeredModel:
    specs = (LayerSpec(name=f"layer_{i}", build=made) for i, made in enumerate(modules))
    return LayeredModel(layers=tuple(specs), loss=loss, example=example, tokens_per_sample=1)


def test_a_chain_has_edges_between_neighbours() -> None:
    """Each layer reads what the one before makes."""
    size = SAMPLES * HIDDEN * BYTES
    assert edges_of(toy_model()) == {(0, 1): size, (1, 2): size}


def test_what_is_handed_on_goes_past_layers() -> None:
    """A tensor that the middle layer hands on is an edge from its maker to its reader."""
    size = SAMPLES * WIDTH * BYTES
    found = edges_of(layered(partial(nn.Linear, WIDTH, WIDTH), Forked, Beside, Joined))
    assert found == {(0, 1): size, (1, 2): size, (2, 3): size, (0, 3): size}


def test_a_layer_that_reads_nothing_stands_in_line() -> None:
    """An identity has an edge from the layer before and one to the layer behind."""
    size = SAMPLES * WIDTH * BYTES
    found = edges_of(layered(partial(nn.Linear, WIDTH, WIDTH), nn.Identity, nn.ReLU))
    assert found == {(0, 1): size, (1, 2): size}
