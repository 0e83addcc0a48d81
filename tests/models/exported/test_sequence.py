"""Lists of modules as layers."""

import copy

import pytest
import torch
from torch import nn

from diaulos.errors import InputError
from diaulos.models.exported.sequence import layers_of
from diaulos.models.layers import build_layer, meta_layer, run_layer
from tests.models.exported.toys import seeded


def _loss(outputs, targets):
    return (outputs - targets).square().sum()


def _example(microbatch_size):
    return torch.ones(microbatch_size, 3), torch.ones(microbatch_size, 3)


def _chain():
    first = nn.Linear(3, 3)
    return nn.Sequential(first, nn.Tanh(), nn.Linear(3, 3), first)


def test_layers_have_the_weights_of_the_modules():
    """A sequence gives what its layers give one after another; a module used twice is tied."""
    chain = seeded(_chain)
    model = layers_of(chain, loss=_loss, example=_example)
    stream = (torch.ones(2, 3),)
    for spec in model.layers:
        stream = run_layer(build_layer(spec, 0), stream, recompute=False)

    assert torch.equal(chain(torch.ones(2, 3)), stream[0])
    assert {
        "layer_3.weight": "layer_0.weight",
        "layer_3.bias": "layer_0.bias",
    } == model.ties


def test_frozen_layers_have_no_parameters_to_train():
    """Their weights require no gradient and are not counted."""
    model = layers_of(
        {"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)},
        loss=_loss,
        example=_example,
        frozen=["a"],
    )

    assert not build_layer(model.layers[0], 0).weight.requires_grad
    assert not meta_layer(model.layers[0]).weight.requires_grad
    assert list(model.parameter_shapes()) == ["b.weight", "b.bias"]


def test_frozen_layers_must_exist():
    """The layers that there are are named."""
    with pytest.raises(InputError, match="layer 'c' is to be frozen; there are layer_0"):
        layers_of([nn.Linear(3, 3)], loss=_loss, example=_example, frozen=["c"])


def test_layers_are_copies():
    """What a stage does to its layer is not done to the module."""
    chain = seeded(_chain)
    before = copy.deepcopy(chain.state_dict())
    build_layer(layers_of(chain, loss=_loss, example=_example).layers[0], 0).weight.data.zero_()

    assert torch.equal(before["0.weight"], chain.state_dict()["0.weight"])
