"""Models that a function of the user's own makes."""

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.factories import load_model, summed_outputs

TOYS = "tests.models.factory_toys"


def test_a_sequence_is_a_chain_of_its_members() -> None:
    """Its layers are called by their places, and the microbatch is that of the inputs."""
    made = load_model(f"{TOYS}:chain")
    assert [layer.name for layer in made.model.layers] == ["layer_0", "layer_1", "layer_2"]
    assert made.samples == 5
    with pytest.raises(InputError, match=r"microbatch_size is 4; .* inputs of 5"):
        made.model.example(4)


def test_a_model_of_layers_is_taken_as_it_is() -> None:
    """It says itself what a microbatch looks like, of any size."""
    made = load_model(f"{TOYS}:layered")
    assert [layer.name for layer in made.model.layers] == ["embedding", "block_0", "head"]
    assert made.samples is None


def test_any_other_module_is_cut_where_its_children_run() -> None:
    """Arguments that are no tensors are static."""
    made = load_model(f"{TOYS}:branches")
    names = [layer.name for layer in made.model.layers]
    assert names == ["stem", "left_0", "left_1", "right", "join"]
    assert made.samples == 4


def test_a_module_without_a_loss_sums_what_it_gives() -> None:
    """All floating-point outputs count, whatever the targets."""
    outputs = (torch.ones(2, 3), torch.ones(2, dtype=torch.long), torch.ones(4))
    assert summed_outputs(*outputs, torch.zeros(2)) == 10


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("toys", "'toys' names no factory; it is module:factory"),
        ("no_such_module:make", "'no_such_module' cannot be imported"),
        (f"{TOYS}:make", "has no function 'make'; it has .*branches"),
        (f"{TOYS}:number", "returned a int; a factory takes no arguments"),
        (f"{TOYS}:without_inputs", "gave no example inputs"),
    ],
)
def test_what_is_no_factory_is_refused(reference: str, message: str) -> None:
    """The message says what a factory is, or what the module has instead."""
    with pytest.raises(InputError, match=message):
        load_model(reference)
