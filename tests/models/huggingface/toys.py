"""Tiny Hugging Face models with random weights, and data for them."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from transformers import (
    BertConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    T5Config,
)

from diaulos.models.huggingface.model import pretrained
from diaulos.models.layers import LayeredModel

LENGTH = 8
VOCABULARY = 61
_ENCODER = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "vocab_size": VOCABULARY,
}
_DECODER = {**_ENCODER, "num_key_value_heads": 2}
CONFIGS = {
    "llama": LlamaConfig(**_DECODER),
    "qwen3": Qwen3Config(**_DECODER, head_dim=4),
    "gemma": GemmaConfig(**_DECODER, head_dim=4),
    "mistral": MistralConfig(**_DECODER, sliding_window=3),
    "qwen2": Qwen2Config(
        **_DECODER, use_sliding_window=True, sliding_window=3, max_window_layers=1
    ),
    "gpt2": GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH),
    "bert": BertConfig(**_ENCODER, max_position_embeddings=LENGTH),
    "t5": T5Config(
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        vocab_size=VOCABULARY,
    ),
}


def toy_model(kind: str, *, padded: bool = False, **changes: object) -> LayeredModel:
    """The model of a kind."""
    return pretrained(CONFIGS[kind], sequence_length=LENGTH, padded=padded, **changes)


def inputs_of(config: PreTrainedConfig) -> int:
    """How many tensors of tokens a model takes."""
    return 2 if config.model_type == "t5" else 1


@dataclass(frozen=True, kw_only=True)
class RandomBatches:
    """Microbatches of two samples, the second of which ends early where they are padded."""

    inputs: int = 1
    padded: bool = False

    def __call__(self, batch: int, microbatch: int) -> tuple[tuple[Tensor, ...], Tensor]:
        generator = torch.Generator().manual_seed(1000 * batch + microbatch)
        shape = (2, LENGTH)
        tokens = [
            torch.randint(VOCABULARY, shape, generator=generator) for _ in range(self.inputs + 1)
        ]
        if not self.padded:
            return tuple(tokens[:-1]), tokens[-1]
        padding = torch.ones(shape, dtype=torch.bool)
        padding[1, LENGTH - 1 - microbatch % 3 :] = False
        return (*tokens[:-1], padding), tokens[-1]
