"""Weight versions: which are alive, when they may be replaced, and what an update reads."""

from functools import partial

import pytest
import torch

from diaulos.errors import CheckError
from diaulos.models.gpt import gpt
from diaulos.training.stage import PlacedLayer, StageModule
from diaulos.training.weights import WeightVersions
from tests.training.toy import CONFIG


def _weights(kept, make_optimizer=partial(torch.optim.SGD, lr=0.5)):
    spec = gpt(CONFIG).layers[-1]
    return WeightVersions(
        StageModule([PlacedLayer(spec=spec, recompute=False)], 0), kept, make_optimizer
    )


def _ones(weights):
    return [torch.ones_like(parameter) for _, parameter in weights.named(weights.newest)]


@pytest.mark.parametrize("kept", [1, 2])
def test_an_update_makes_the_next_version_from_the_newest(kept):
    """W(t+1) = W(t) - lr * gradient, whatever version the gradient was computed with."""
    weights = _weights(kept)
    before = [parameter.detach().clone() for _, parameter in weights.named(0)]
    weights.update(_ones(weights))
    weights.update(_ones(weights))

    assert weights.newest == 2
    for old, (_, new) in zip(before, weights.named(2), strict=True):
        assert torch.equal(old - 0.5 - 0.5, new)


def test_the_previous_version_stays_as_it_was():
    """With two versions kept, an update leaves the version before it untouched."""
    weights = _weights(2)
    before = [parameter.detach().clone() for _, parameter in weights.named(0)]
    weights.update(_ones(weights))

    for old, (_, kept) in zip(before, weights.named(0), strict=True):
        assert torch.equal(old, kept)


def test_a_version_in_use_is_not_replaced():
    """An update over a version that a microbatch in flight uses is refused."""
    weights = _weights(2)
    lease = weights.lease(0)
    weights.update(_ones(weights))
    with pytest.raises(CheckError, match="would replace version 0, which 1 microbatches"):
        weights.update(_ones(weights))
    weights.release(lease)
    weights.update(_ones(weights))

    assert weights.newest == 2


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_skipped_update_is_as_if_it_had_not_been(kept):
    """The version counts, its weights are those before, and the optimizer goes on from there."""
    momentum = partial(torch.optim.SGD, lr=0.5, momentum=0.9)
    skipping, plain = _weights(kept, momentum), _weights(kept, momentum)
    for weights in (skipping, plain):
        weights.update(_ones(weights))
    skipping.skip()
    assert skipping.newest == 2
    for (_, a), (_, b) in zip(skipping.named(2), plain.named(1), strict=True):
        assert torch.equal(a, b)
    for weights in (skipping, plain):
        weights.update(_ones(weights))
    for (_, a), (_, b) in zip(skipping.named(3), plain.named(2), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("version", [-1, 1, 7])
def test_a_version_that_is_not_alive_is_not_leased(version):
    """Only versions that exist and are kept can be computed with."""
    with pytest.raises(CheckError, match=f"version {version} of the weights is not alive"):
        _weights(2).lease(version)


def test_versions_alive_are_counted():
    """The peak counts the newest version and those in use, each once."""
    weights = _weights(2)
    assert weights.peak_alive == 1
    weights.lease(0)
    weights.update(_ones(weights))
    weights.lease(1)
    weights.lease(1)

    assert weights.peak_alive == 2


def test_missing_gradients_are_named():
    """A parameter that no gradient reached stops the run, by its name."""
    weights = _weights(1)
    with pytest.raises(CheckError, match=r"no gradient reached head\.norm\.weight"):
        weights.take_gradients(0)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        partial(torch.optim.AdamW, lr=0.1, foreach=True),
        partial(torch.optim.AdamW, lr=0.1, fused=True),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    ],
)
def test_the_optimizer_does_not_notice_the_banks(make_optimizer):
    """Ten updates over two banks equal ten updates in place, to the bit, with one state."""
    one, two = _weights(1, make_optimizer), _weights(2, make_optimizer)
    for step in range(10):
        generator = torch.Generator().manual_seed(step)
        gradients = [torch.randn(g.shape, generator=generator) for g in _ones(one)]
        one.update([gradient.clone() for gradient in gradients])
        two.update(gradients)

    for (name, alone), (_, banked) in zip(one.named(10), two.named(10), strict=True):
        assert torch.equal(alone, banked)
        assert one.optimizer_state()[name].keys() == two.optimizer_state()[name].keys()
    assert len(two.optimizer_state()) == len(two.names)
