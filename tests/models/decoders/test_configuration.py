"""Configs are read as the models that they describe; wrong ones are told which key is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from diaulos.documents import Value
from diaulos.errors import InputError
from diaulos.models.decoders.configuration import model_types, parse_config, read_config
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.decoders.sizes import DecoderSizes
from diaulos.models.operations import Workload
from tests.models.decoders.published import CONFIGS, PARAMETERS


def parse(raw: dict[str, Any]) -> DecoderSizes:
    return parse_config(Value(raw, "$", "config.json"), "model")


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    """The parameters of published models are counted to the last one."""
    workload = Workload(microbatch_size=1, sequence_length=16)
    assert decoder_operations(parse(CONFIGS[name]), workload).parameter_count == PARAMETERS[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_key_that_is_missing_is_named(name: str) -> None:
    """Without any one of its sizes a config is refused, or it has the default of its family."""
    for key in CONFIGS[name]:
        shorter = {other: value for other, value in CONFIGS[name].items() if other != key}
        try:
            parse(shorter)
        except InputError as error:
            assert repr(key) in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama-3-8b", {"num_attention_heads": 0}, r"num_attention_heads is 0.*at least 1"),
        ("llama-3-8b", {"num_attention_heads": 30}, r"num_key_value_heads is 8 and num_attention"),
        ("llama-2-7b", {"num_attention_heads": 30}, r"num_attention_heads is 30 and hidden_size"),
        ("gpt2", {"n_head": 7}, r"n_head is 7 and n_embd is 768; n_embd must be a multiple"),
        ("gpt2", {"n_layer": "twelve"}, r"n_layer is a string \('twelve'\)"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "takes 9 experts of 8"),
        ("gpt2", {"model_type": "gtp2"}, "did you mean gpt2"),
        ("gpt2", {"model_type": "whisper"}, "model_type is 'whisper', of which no closed form"),
    ],
)
def test_wrong_values_are_told_with_their_key(
    name: str, changes: dict[str, object], message: str
) -> None:
    """A value that cannot be is refused in a sentence with its key and the rule."""
    with pytest.raises(InputError, match=message):
        parse({**CONFIGS[name], **changes})


def test_a_folder_and_a_file_are_read_alike(tmp_path: Path) -> None:
    """A folder with a config.json is the model in it."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIGS["llama-3-8b"]))
    assert read_config(tmp_path) == read_config(file)


def test_of_a_model_that_reads_images_the_text_part_is_taken() -> None:
    """Nested configs are read as their text part, and the name says so."""
    whole = {"model_type": "llama4", "text_config": CONFIGS["llama-4-scout"]}
    found = parse(whole)
    assert found.blocks == parse(CONFIGS["llama-4-scout"]).blocks
    assert "text part" in found.name


def test_every_family_has_an_example() -> None:
    """Each model type with a closed form is tried here, those that read images aside."""
    tried = {config["model_type"] for config in CONFIGS.values()}
    assert set(model_types()) - tried == {"deepseek_v2", "gemma3", "llama4", "mistral3"}


def test_windows_follow_the_layers() -> None:
    """Gemma 2 alternates between a window and none; Qwen's starts late and only if asked for."""
    gemma = parse(CONFIGS["gemma-2-9b"])
    assert [b.attention.window for b in gemma.blocks[:3]] == [4096, None, 4096]  # type: ignore[union-attr]
    asked = parse({**CONFIGS["qwen2-7b"], "use_sliding_window": True, "max_window_layers": 20})
    windows = [block.attention.window for block in asked.blocks]  # type: ignore[union-attr]
    assert windows == [None] * 20 + [131072] * 8
