"""Layers are built by name, the same in any split."""

import pickle
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from diaulos.errors import InputError
from diaulos.models.layers import LayeredModel, LayerSpec, build_layer, meta_layer, run_layer


def spec(name: str) -> LayerSpec:
    return LayerSpec(name=name, build=partial(nn.Linear, 3, 3))


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - targets) ** 2).sum()


def example(microbatch_size: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(microbatch_size, 3), torch.zeros(microbatch_size, 3)


def model(*names: str) -> LayeredModel:
    return LayeredModel(
        layers=tuple(spec(name) for name in names),
        loss=squared_error,
        example=example,
        tokens_per_sample=1,
    )


@given(order=st.permutations(["a", "b", "c"]), seed=st.integers(0, 2**64))
def test_weights_come_from_seed_and_name_alone(order: list[str], seed: int) -> None:
    """A layer has the same weights whatever is built before it and whatever the random state."""
    alone = build_layer(spec("b"), seed)
    torch.rand(seed % 7)
    together = {name: build_layer(spec(name), seed) for name in order}
    assert torch.equal(together["b"].weight, alone.weight)
    assert torch.equal(together["b"].bias, alone.bias)


def test_layers_of_other_names_or_seeds_differ() -> None:
    """Equal layers of one model do not start from equal weights, nor do runs of other seeds."""
    first = build_layer(spec("block_0"), 0)
    assert not torch.equal(first.weight, build_layer(spec("block_1"), 0).weight)
    assert not torch.equal(first.weight, build_layer(spec("block_0"), 1).weight)


def test_building_leaves_the_random_state_alone() -> None:
    """What the caller draws next does not depend on the layers that were built."""
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    build_layer(spec("a"), 0)
    assert torch.equal(torch.rand(4), expected)


def test_a_model_survives_pickling() -> None:
    """A model can be sent to a rank."""
    copy = pickle.loads(pickle.dumps(model("a", "b")))
    assert copy.layer("b").name == "b"
    assert torch.equal(build_layer(copy.layers[0], 3).weight, build_layer(spec("a"), 3).weight)


@pytest.mark.parametrize("names", [(), ("a", "a"), ("",)])
def test_a_model_needs_layers_with_names_of_their_own(names: tuple[str, ...]) -> None:
    """No layer, two of one name, and an empty name are refused."""
    with pytest.raises(InputError):
        model(*names)


def test_an_unknown_layer_is_answered_with_the_known_ones() -> None:
    """Asking for a layer that is not there says which are."""
    with pytest.raises(InputError, match="the model has a, b"):
        model("a", "b").layer("c")


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_recomputation_changes_no_gradient(needs_gradient: bool) -> None:
    """A recomputed layer gives the same output and gradients, also when its input needs none."""
    gradients = []
    for recompute in (False, True):
        layer = build_layer(spec("a"), 0)
        entering = torch.ones(2, 3, requires_grad=needs_gradient)
        (output,) = run_layer(layer, (entering,), recompute=recompute)
        output.square().sum().backward()
        gradients.append((output.detach(), layer.weight.grad, entering.grad))
    for plain, recomputed in zip(*gradients, strict=True):
        assert (plain is None and recomputed is None) or torch.equal(plain, recomputed)


def test_frozen_layers_have_no_parameters_to_train():
    """Their weights require no gradient and are not counted."""
    frozen = model("a", "b").freeze(["a"])

    assert not build_layer(frozen.layer("a"), 0).weight.requires_grad
    assert not meta_layer(frozen.layer("a")).weight.requires_grad
    assert list(frozen.parameter_shapes()) == ["b.weight", "b.bias"]


def test_frozen_layers_must_exist():
    """The layers that there are are named."""
    with pytest.raises(InputError, match="there is no layer 'c'; the model has a, b"):
        model("a", "b").freeze(["c"])


def test_tied_layers_are_frozen_together():
    """One of two parameters that are one cannot be trained alone."""
    tied = replace(model("a", "b"), ties={"b.weight": "a.weight"})
    with pytest.raises(InputError, match="freeze both b and a, or none"):
        tied.freeze(["a"])
    assert list(tied.freeze(["a", "b"]).parameter_shapes()) == []
