"""Hugging Face models as layers, against transformers' own forward."""

import pickle
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)

from diaulos.errors import InputError
from diaulos.models.huggingface.model import pretrained
from diaulos.models.huggingface.saving import stored_names
from diaulos.models.layers import build_layer, meta_layer, run_layer
from tests.models.huggingface.toys import (
    CONFIGS,
    RandomBatches,
    inputs_of,
    toy_model,
)

CLASSES = {"bert": AutoModelForMaskedLM, "t5": AutoModelForSeq2SeqLM}


def _layers(model):
    """The layers with tied weights that are equal, as stages make them."""
    layers = [build_layer(spec, 0).eval() for spec in model.layers]
    weights = {
        f"{spec.name}.{name}": weight
        for spec, layer in zip(model.layers, layers, strict=True)
        for name, weight in layer.named_parameters()
    }
    with torch.no_grad():
        for tied, owner in model.ties.items():
            weights[tied].copy_(weights[owner])
    return layers, weights


def _theirs(kind, model, weights):
    """The whole model of transformers with these weights, by the names that files would have."""
    whole = CLASSES.get(kind, AutoModelForCausalLM).from_config(
        CONFIGS[kind], attn_implementation="sdpa"
    )
    state = {stored: weights[name].detach() for name, stored in stored_names(model).items()}
    missing, unexpected = whole.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= set(whole.all_tied_weights_keys)
    return whole.eval()


def _scores(whole, inputs, *, padded):
    tokens = inputs[:-1] if padded else inputs
    more = {"attention_mask": inputs[-1].long()} if padded else {}
    if len(tokens) > 1:
        more["decoder_input_ids"] = tokens[1]
    return whole(input_ids=tokens[0], use_cache=False, **more).logits


def _run(layers, stream):
    for layer in layers:
        stream = run_layer(layer, stream, recompute=False)
    return stream[0]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", CONFIGS)
def test_layers_give_what_the_model_gives(kind, padded):
    """Scores of all tokens that are no padding are equal to the bit, gradients up to rounding."""
    model = toy_model(kind, padded=padded)
    layers, weights = _layers(model)
    whole = _theirs(kind, model, weights)
    inputs, _ = RandomBatches(inputs=inputs_of(CONFIGS[kind]), padded=padded)(0, 1)
    found, expected = _run(layers, inputs), _scores(whole, inputs, padded=padded)
    if padded and kind != "t5":
        found, expected = found[inputs[-1]], expected[inputs[-1]]
    found.square().sum().backward()
    expected.square().sum().backward()

    assert torch.equal(expected, found)
    theirs = dict(whole.named_parameters())
    for name, stored in stored_names(model).items():
        copies = [tied for tied, owner in model.ties.items() if owner == name]
        gradient = sum(weights[copy].grad for copy in (name, *copies))
        torch.testing.assert_close(gradient, theirs[stored].grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", CONFIGS)
def test_layers_survive_pickling_and_the_meta_device(kind):
    """Ranks build them from recipes, and find out shapes without numbers."""
    model = toy_model(kind, padded=True)
    specs = pickle.loads(pickle.dumps(model.layers))
    layers = [meta_layer(spec) for spec in specs]
    inputs, _ = model.example(2)
    scores = _run(layers, tuple(tensor.to("meta") for tensor in inputs))

    assert scores.shape == _run(_layers(model)[0], inputs).shape
    first = build_layer(specs[1], 3).state_dict()
    for name, tensor in build_layer(model.layers[1], 3).state_dict().items():
        assert torch.equal(first[name], tensor)


def test_weights_start_as_the_model_starts_them():
    """Deviations of first weights are those of the config, and norms begin at one."""
    config = changed_model("llama", hidden_size=64, intermediate_size=96)
    layer = build_layer(config.layers[1], 0)

    assert layer.block.mlp.up_proj.weight.detach().std() == pytest.approx(0.02, rel=0.1)
    assert torch.equal(layer.block.input_layernorm.weight, torch.ones(64))


def changed_model(kind, **changes):
    """The model of a kind with other sizes."""
    return pretrained(
        type(CONFIGS[kind]).from_dict({**CONFIGS[kind].to_dict(), **changes}), sequence_length=8
    )


def test_rotary_frequencies_are_not_rounded():
    """A layer that computes in 16 bits turns positions by angles in 32."""
    block = build_layer(toy_model("llama").layers[1], 0)
    before = block.rotary.inner.inv_freq.clone()
    block.to(torch.bfloat16)

    assert torch.equal(before, block.rotary.inner.inv_freq)
    assert block.block.mlp.up_proj.weight.dtype is torch.bfloat16


def test_models_with_dropout_in_attention_are_not_split():
    """The masks would depend on the degree, so that the layers say of no split."""
    assert toy_model("llama").layers[1].tensor_split is not None
    assert changed_model("llama", attention_dropout=0.1).layers[1].tensor_split is None


def test_heads_that_the_degree_does_not_divide_are_named():
    """Heads of keys and values count as well."""
    split = toy_model("llama").layers[1].tensor_split
    with pytest.raises(InputError, match=r"block_0 has 2 heads of keys and values, .* degree 4"):
        split.check("block_0", 4, sequence_parallel=False)


def test_more_positions_than_the_model_has_are_refused():
    """GPT-2 has an embedding for each position."""
    with pytest.raises(InputError, match="sequence_length is 9; the model has 8 positions"):
        pretrained(CONFIGS["gpt2"], sequence_length=9)


def test_decoders_of_something_else_are_refused():
    """A BERT that attends to an encoder is none of these."""
    with pytest.raises(InputError, match="is_decoder is true; bert is trained on its own tokens"):
        changed_model("bert", is_decoder=True)


def test_only_models_of_hugging_face_have_its_layout():
    """A model of other layers has no names for it."""
    model = toy_model("llama")
    with pytest.raises(InputError, match="the model is none of Hugging Face's"):
        stored_names(replace(model, layers=model.layers[-1:], ties={}))
