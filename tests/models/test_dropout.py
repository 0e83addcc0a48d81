"""Dropout whose mask is that of the whole tensor."""

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.dropout import Dropout


def _drop(entering, *part):
    module = Dropout(0.5)
    if part:
        module.take_part(*part)
    torch.manual_seed(1)
    return module(entering)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_parts_drop_what_the_whole_drops(dim):
    """The parts of the output are the output of the parts."""
    entering = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))
    whole = _drop(entering)
    parts = [_drop(part, dim, index, 2) for index, part in enumerate(entering.chunk(2, dim))]

    assert torch.equal(whole, torch.cat(parts, dim))


def test_the_mean_stays():
    """A share is left out, and the rest scaled up."""
    dropped = _drop(torch.ones(10_000))

    assert set(dropped.tolist()) == {0.0, 2.0}
    assert dropped.mean() == pytest.approx(1.0, abs=0.05)


def test_nothing_is_left_out_in_evaluation():
    """Nor where the share is 0."""
    entering = torch.ones(10)
    for module in (Dropout(0.5).eval(), Dropout(0.0)):
        assert module(entering) is entering


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_out_of_range_are_refused(share):
    """All or less than nothing cannot be left out."""
    with pytest.raises(InputError, match="dropout is"):
        Dropout(share)
