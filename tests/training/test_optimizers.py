"""Optimizers by name."""

import pytest
import torch

from diaulos.errors import InputError
from diaulos.training.optimizers import SGD, AdamW


def test_settings_reach_torch():
    """Each setting is the one that torch's optimizer gets."""
    parameter = torch.nn.Parameter(torch.ones(2))
    adamw = AdamW(learning_rate=0.1, betas=(0.8, 0.9), weight_decay=0.2, fused=True).factory()
    (group,) = adamw([parameter]).param_groups
    assert (0.1, (0.8, 0.9), 0.2, True) == (
        group["lr"],
        group["betas"],
        group["weight_decay"],
        group["fused"],
    )
    (group,) = SGD(learning_rate=0.3, momentum=0.5).factory()([parameter]).param_groups
    assert (0.3, 0.5) == (group["lr"], group["momentum"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AdamW(learning_rate=0), "learning_rate is 0"),
        (lambda: AdamW(learning_rate=1, betas=(1.0, 0.9)), "betas is"),
        (lambda: SGD(learning_rate=1, momentum=1.0), "momentum is 1.0"),
    ],
)
def test_impossible_settings_are_refused(build, message):
    """A setting outside its range is named with its value."""
    with pytest.raises(InputError, match=message):
        build()


def test_state_bytes_are_those_of_torch():
    """The state counted for memory is what the optimizer holds after a step, counters apart."""
    for settings in (
        AdamW(learning_rate=0.1),
        SGD(learning_rate=0.1),
        SGD(learning_rate=0.1, momentum=0),
    ):
        parameter = torch.nn.Parameter(torch.ones(1000))
        parameter.grad = torch.ones(1000)
        optimizer = settings.factory()([parameter])
        optimizer.step()
        held = sum(
            tensor.nbytes
            for tensor in optimizer.state[parameter].values()
            if tensor is not None and tensor.ndim
        )
        assert held == settings.state_bytes_per_parameter_byte * parameter.nbytes
