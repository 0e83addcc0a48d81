"""The bytes of layers, against hand counts."""

from functools import partial

import pytest
import torch
from torch.optim import AdamW

from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.layers import LayeredModel
from diaulos.pricing.chain import Chain, adamw
from diaulos.pricing.sizes import LayerSizes, measure_sizes
from tests.pricing.toy_model import BYTES, HIDDEN, SAMPLES, WIDTH, toy_model

NARROW_BYTES = SAMPLES * WIDTH * BYTES
WIDE_BYTES = SAMPLES * HIDDEN * BYTES
WEIGHT_BYTES = WIDTH * HIDDEN * BYTES


def sizes_of(model: LayeredModel) -> list[LayerSizes]:
    chain = Chain(model, microbatch_size=SAMPLES, optimizer=adamw, device=torch.device("cpu"))
    return measure_sizes(chain)


@pytest.fixture(scope="module")
def toy() -> list[LayerSizes]:
    return sizes_of(toy_model())


def test_parameters_and_outputs_are_counted(toy: list[LayerSizes]) -> None:
    """Weights and biases; outputs of a microbatch, the loss being one number."""
    parameters = [WEIGHT_BYTES + HIDDEN * BYTES, 0, WEIGHT_BYTES + WIDTH * BYTES]
    assert [layer.parameter_bytes for layer in toy] == parameters
    assert [layer.output_bytes for layer in toy] == [WIDE_BYTES, WIDE_BYTES, BYTES]


def test_activations_equal_a_hand_count(toy: list[LayerSizes]) -> None:
    """Linear and GELU keep their inputs, which count once; the squared error keeps a difference."""
    kept = [layer.plain.activation_bytes for layer in toy]
    assert kept == [NARROW_BYTES, WIDE_BYTES, WIDE_BYTES + NARROW_BYTES]


def test_recomputation_keeps_only_the_input(toy: list[LayerSizes]) -> None:
    """Beside the input, only what the loss keeps outside of the layer is left."""
    kept = [layer.recompute.activation_bytes for layer in toy]
    assert kept == [NARROW_BYTES, WIDE_BYTES, WIDE_BYTES + NARROW_BYTES]
    block = sizes_of(gpt(GPTConfig(layers=1, width=WIDTH, heads=2, sequence_length=16)))[1]
    assert block.recompute.activation_bytes == SAMPLES * 16 * WIDTH * BYTES


def test_a_block_keeps_sixteen_widths() -> None:
    """A GPT block keeps 16 activations of its width, and what its norms and softmax summed up.

    Input, norm, q, k, v, mixed, sum, norm: 8; before and after GELU: 4 each.
    """
    config = GPTConfig(layers=1, width=64, heads=4, sequence_length=16)
    block = sizes_of(gpt(config))[1]
    tokens = SAMPLES * config.sequence_length
    statistics = tokens * (2 * 2 + config.heads)
    assert block.plain.activation_bytes == BYTES * (16 * tokens * config.width + statistics)


def test_recomputation_trades_kept_for_temporary() -> None:
    """At its worst moment a recomputed block holds what the plain one holds."""
    block = sizes_of(gpt(GPTConfig(layers=1, width=64, heads=4, sequence_length=16)))[1]
    plain = block.plain.activation_bytes + block.plain.temporary_bytes
    recompute = block.recompute.activation_bytes + block.recompute.temporary_bytes
    assert recompute == pytest.approx(plain, rel=0.05)
    assert block.recompute.temporary_bytes >= (
        block.plain.activation_bytes - block.recompute.activation_bytes
    )


def test_the_temporary_holds_output_gradients_and_a_new_weight_gradient(
    toy: list[LayerSizes],
) -> None:
    """Output, its gradient and the gradient about to be added to the existing one are alive."""
    least = 2 * WIDE_BYTES + WEIGHT_BYTES
    assert least <= toy[0].plain.temporary_bytes <= least + WIDE_BYTES + NARROW_BYTES + 1024


def test_an_optimizer_that_copies_its_weights_is_seen() -> None:
    """The temporary memory covers the update: a foreach step has copies of all weights at once."""
    config = GPTConfig(layers=1, width=64, heads=4, sequence_length=1)
    least = {}
    for foreach in (False, True):
        chain = Chain(
            gpt(config),
            microbatch_size=1,
            optimizer=partial(AdamW, foreach=foreach),
            device=torch.device("cpu"),
        )
        block = measure_sizes(chain)[1]
        least[foreach] = block.plain.temporary_bytes / block.parameter_bytes
    assert least[False] < 0.75
    assert least[True] >= 0.99
