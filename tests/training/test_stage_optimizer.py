"""The optimizer of a stage: masters, and the weights that a replica updates."""

from functools import partial

import pytest
import torch
from torch import nn

from diaulos.training.stage_optimizer import StageOptimizer

STEP = 1e-3
"""What a bfloat16 near 1 does not notice."""


def _weights(*values, dtype=torch.float32):
    return [nn.Parameter(torch.full((2,), value, dtype=dtype)) for value in values]


def _step(optimizer, source, target):
    ones = [torch.ones(2) for _ in source]
    optimizer.step(source, target, ones, learning_rate_share=1.0)


def test_small_steps_add_up_in_masters():
    """Weights in 16 bits are rounded from masters, which lose nothing."""
    weights = _weights(1.0, dtype=torch.bfloat16)
    make = partial(torch.optim.SGD, lr=STEP)
    optimizer = StageOptimizer(weights, [0], make, torch.float32)
    for _ in range(100):
        _step(optimizer, weights, weights)

    (master,) = optimizer.masters
    torch.testing.assert_close(master.detach(), torch.full((2,), 1 - 100 * STEP))
    assert torch.equal(weights[0], master.to(torch.bfloat16))


def test_without_masters_the_next_version_is_stepped_on_itself():
    """No third copy of the weights is kept, and the version before stays as it was."""
    source, target = _weights(1.0, 2.0), _weights(0.0, 0.0)
    optimizer = StageOptimizer(source, [0, 1], partial(torch.optim.SGD, lr=1.0), torch.float32)
    _step(optimizer, source, target)

    assert optimizer.masters is None
    assert [1.0, 2.0] == [weight[0].item() for weight in source]
    assert [0.0, 1.0] == [weight[0].item() for weight in target]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_of_others_are_left_alone(dtype):
    """A replica steps on its own share, and has the state of that alone."""
    source, target = _weights(1.0, 2.0, dtype=dtype), _weights(7.0, 8.0, dtype=dtype)
    make = partial(torch.optim.SGD, lr=0.5, momentum=0.9)
    optimizer = StageOptimizer(source, [1], make, torch.float32)
    _step(optimizer, source, target)

    assert [7.0, 1.5] == [weight[0].item() for weight in target]
    assert list(optimizer.state()) == [1]


def test_a_replica_without_weights_does_nothing():
    """Torch's optimizers would refuse to be made."""
    weights = _weights(1.0)
    optimizer = StageOptimizer(weights, [], partial(torch.optim.SGD, lr=1.0), torch.float32)
    _step(optimizer, weights, weights)

    assert weights[0][0].item() == 1.0
    assert optimizer.state() == {}
