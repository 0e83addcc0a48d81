"""Models traced on the meta device are those that the closed forms describe."""

from functools import cache

import pytest

from diaulos.documents import Value
from diaulos.errors import InputError
from diaulos.models.decoders.configuration import parse_config
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.operations import ModelOperations, Region, Split, Workload
from tests.models.decoders.published import CONFIGS
from tests.models.traced.configs import OTHERS, PARAMETERS

pytest.importorskip("transformers", reason="needs the extra diaulos[hf]")

from diaulos.models.traced.model import TracedModel, parse_model

WORKLOAD = Workload(microbatch_size=1, sequence_length=2048)
FUSED_KEEP = ("gpt2", "llama-2-7b", "llama-3-70b", "mistral-7b", "qwen2-7b", "qwen3-8b", "opt-6.7b")


@cache
def model(name: str) -> TracedModel:
    config = CONFIGS.get(name) or OTHERS[name]
    return parse_model(Value(config, "$", name), name)


def traced(name: str) -> ModelOperations:
    return model(name)(WORKLOAD)


def closed(name: str) -> ModelOperations:
    return decoder_operations(parse_config(Value(CONFIGS[name], "$", name), name), WORKLOAD)


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_and_flops_are_those_of_the_closed_form(name: str) -> None:
    """Parameters agree to the last one, FLOPs within a hundredth; so do the limits of splits."""
    seen, stated = traced(name), closed(name)
    assert seen.parameter_count == stated.parameter_count
    assert seen.model_flops == pytest.approx(stated.model_flops, rel=0.01)
    assert (seen.heads, seen.experts) == (stated.heads, stated.experts)


@pytest.mark.parametrize("name", CONFIGS)
def test_shards_hold_the_same(name: str) -> None:
    """As many parameters are split, whole, and of experts, as the closed form says."""

    def by_region(operations: ModelOperations) -> dict[Region, int]:
        return {
            region: sum(
                some.count
                for layer in operations.layers
                for some in layer.operations.parameters
                if some.region is region
            )
            for region in Region
        }

    seen, stated = by_region(traced(name)), by_region(closed(name))
    for region in Region:
        assert seen[region] == pytest.approx(stated[region], rel=0.01, abs=0)


@pytest.mark.parametrize("name", FUSED_KEEP)
def test_blocks_keep_what_fused_kernels_keep(name: str) -> None:
    """A minimum cut of what autograd keeps is what the closed form says, shard by shard."""
    seen, stated = traced(name).layers[2].operations, closed(name).layers[2].operations
    for region in (Region.WHOLE, Region.SPLIT):
        kept = [sum(t.bytes for t in o.saved if t.region is region) for o in (seen, stated)]
        assert kept[0] == pytest.approx(kept[1], rel=1e-3)


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "gpt-neox-20b", "deepseek-v3"])
def test_layers_are_called_as_those_of_the_closed_form(name: str) -> None:
    """Plans of one can be read with the other; blocks that are alike share their operations."""
    seen, stated = traced(name), closed(name)
    assert [layer.name for layer in seen.layers] == [layer.name for layer in stated.layers]
    kinds = [len({id(layer.operations) for layer in o.layers}) for o in (seen, stated)]
    assert kinds[0] == kinds[1]


def test_a_tied_head_is_owned_by_the_embedding() -> None:
    """GPT-2's head has the embedding's parameters, and counts none of its own."""
    head = traced("gpt2").layers[-2].operations
    (parameters,) = head.parameters
    assert parameters.tied_to == "embedding"
    assert head.parameter_count == 0
    assert head.products[0].split is Split.COLUMNS


@pytest.mark.parametrize("name", PARAMETERS)
def test_other_models_have_their_published_parameters(name: str) -> None:
    """Encoders, encoder-decoders and models of images are counted to the last parameter."""
    length = 197 if name.startswith("vit") else 512
    found = model(name)(Workload(microbatch_size=2, sequence_length=length))
    assert found.parameter_count == PARAMETERS[name]


def test_the_encoder_reaches_all_blocks_of_the_decoder() -> None:
    """T5's encoder output goes past layers to each block of the decoder but the first."""
    found = model("t5-large")(Workload(microbatch_size=1, sequence_length=512))
    size = 512 * 1024 * 2
    targets = [skip.target for skip in found.skips if skip.source == "decoder_embedding"]
    assert targets == [f"decoder_block_{index}" for index in range(1, 24)]
    bytes_of = {layer.name: layer.operations.output_bytes for layer in found.layers}
    bias = 16 * 512 * 512 * 2
    assert bytes_of["decoder_embedding"] == 2 * size
    assert bytes_of["decoder_block_0"] == bytes_of["decoder_block_22"] == 2 * size + bias
    assert bytes_of["decoder_block_23"] == size


def test_windows_and_dropout_are_seen() -> None:
    """Gemma 2 sees a window in every second block; GPT-2 has dropout; encoders see all."""
    windows = [layer.operations.attentions[0].window for layer in traced("gemma-2-9b").layers[1:5]]
    assert windows == [4096, None, 4096, None]
    assert traced("gpt2").layers[1].operations.attentions[0].dropout
    bert = model("bert-large")(Workload(microbatch_size=1, sequence_length=512))
    assert not bert.layers[1].operations.attentions[0].causal


@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b"])
def test_fp32_takes_twice_the_bytes(name: str) -> None:
    """What products need is kept in the type of the activations; FLOPs stay."""
    half = model(name)(Workload(microbatch_size=1, sequence_length=64))
    full = model(name)(Workload(microbatch_size=1, sequence_length=64, element_bytes=4))
    assert full.model_flops == half.model_flops
    for few, many in zip(half.layers[:-1], full.layers[:-1], strict=True):
        assert many.operations.output_bytes == 2 * few.operations.output_bytes
        kept = [sum(t.bytes for t in layer.operations.saved) for layer in (few, many)]
        assert kept[0] <= kept[1] <= 2 * kept[0]


def test_everything_grows_with_the_samples() -> None:
    """FLOPs and kept bytes of an encoder are proportional to the samples."""
    one, three = (
        model("bert-large")(Workload(microbatch_size=count, sequence_length=64)) for count in (1, 3)
    )
    assert three.model_flops == pytest.approx(3 * one.model_flops)
    for few, many in zip(one.layers[1:-1], three.layers[1:-1], strict=True):
        kept = [sum(t.bytes for t in layer.operations.saved) for layer in (few, many)]
        assert kept[1] == pytest.approx(3 * kept[0])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "brt"}, r"model_type is 'brt', which transformers .* did you mean"),
        ({"hidden_size": 1}, "lacks the key 'model_type'"),
        ({"model_type": "bert", "num_attention_heads": 0}, "num_attention_heads is 0; it must"),
        ({"model_type": "t5", "num_heads": 0}, "num_heads is 0"),
        ({"model_type": "bert", "num_attention_heads": 7}, "is 7 and hidden_size is 768"),
        ({"model_type": "bert", "hidden_size": "many"}, "no config of transformers: .*hidden_size"),
    ],
)
def test_wrong_configs_are_refused(config: dict[str, object], message: str) -> None:
    """A config that makes no model is told in a sentence with the key."""
    with pytest.raises(InputError, match=message):
        parse_model(Value(config, "$", "config.json"), "model")


def test_images_state_their_length() -> None:
    """A model of images makes sequences of one length, and another is refused with it."""
    with pytest.raises(InputError, match=r"sequence_length is 512; .* take 197"):
        model("vit-large")(Workload(microbatch_size=1, sequence_length=512))


def test_a_model_that_wants_data_is_refused() -> None:
    """Mamba 2 branches on values, which the meta device has not."""
    with pytest.raises(InputError, match=r"cannot be traced without data; .* diaulos profile"):
        model("mamba2")(WORKLOAD)
