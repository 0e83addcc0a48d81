"""Lists of modules as layers."""

import copy

import torch
from torch import nn

from diaulos.models.exported.sequence import layers_of
from diaulos.models.layers import build_layer, run_layer
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


def test_layers_are_copies():
    """What a stage does to its layer is not done to the module."""
    chain = seeded(_chain)
    before = copy.deepcopy(chain.state_dict())
    build_layer(layers_of(chain, loss=_loss, example=_example).layers[0], 0).weight.data.zero_()

    assert torch.equal(before["0.weight"], chain.state_dict()["0.weight"])
