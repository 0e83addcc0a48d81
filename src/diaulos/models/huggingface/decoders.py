"""Decoder-only models: those that state a pipeline plan of their own, and GPT-2."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from diaulos.models.decoders.operations import EMBEDDING, FINAL_NORM, HEAD
from diaulos.models.huggingface.layout import LayerLayout, block_class, inner_of
from diaulos.models.huggingface.masks import causal
from diaulos.models.huggingface.recipes import Unrounded
from diaulos.models.layers import Stream


@dataclass(frozen=True, slots=True)
class _Names:
    """What modules of a model are called, inside its base model; the blocks' list last."""

    embeddings: tuple[str, ...]
    blocks: str
    norm: str


_GPT2 = _Names(("wte", "wpe", "drop"), "h", "ln_f")


def planned_decoder(config: PreTrainedConfig, template: PreTrainedModel) -> Iterator[LayerLayout]:
    """The layers of a model that states a pipeline plan: tokens, blocks, norm, in this order."""
    plan = config.base_model_pp_plan or {}
    tokens = next(name for name, (entering, _) in plan.items() if "input_ids" in entering)
    blocks = next(name for name, (entering, _) in plan.items() if "attention_mask" in entering)
    norm = next(name for name in plan if name not in (tokens, blocks))
    yield from _layers(config, template, _Names((tokens,), blocks, norm), rotary="rotary_emb")


def gpt2(config: PreTrainedConfig, template: PreTrainedModel) -> Iterator[LayerLayout]:
    """The layers of GPT-2: embeddings of tokens and positions, blocks, norm."""
    yield from _layers(config, template, _GPT2, rotary=None)


def _layers(
    config: PreTrainedConfig, template: PreTrainedModel, names: _Names, rotary: str | None
) -> Iterator[LayerLayout]:
    base = template.base_model_prefix
    yield LayerLayout(
        name=EMBEDDING,
        make=partial(_embedding, names.embeddings),
        places={f"parts.{i}": f"{base}.{name}" for i, name in enumerate(names.embeddings)},
    )
    for index in range(config.num_hidden_layers):
        yield LayerLayout(
            name=f"block_{index}",
            make=partial(_block, config, index, f"{base}.{names.blocks}", rotary),
            places={"block": f"{base}.{names.blocks}.{index}"},
            block=f"{base}.{names.blocks}.*",
        )
    yield LayerLayout(
        name=FINAL_NORM,
        make=partial(_norm, f"{base}.{names.norm}"),
        places={"norm": f"{base}.{names.norm}"},
    )
    yield LayerLayout(name=HEAD, make=partial(inner_of, "lm_head"), places={"inner": "lm_head"})


class Embedding(nn.Module):
    """Tokens to vectors, with positions added and entries left out where the model does so."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Stream:
        """The hidden state, and the padding where there is some."""
        hidden = self.parts[0](tokens)
        if len(self.parts) > 1:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
            hidden = self.parts[2](hidden + self.parts[1](positions[None]))
        return (hidden,) if padding is None else (hidden, padding)


def _embedding(names: tuple[str, ...], template: PreTrainedModel) -> nn.Module:
    return Embedding([template.base_model.get_submodule(name) for name in names])


class Block(nn.Module):
    """A block with what it needs besides the hidden state: rotary embeddings and its mask."""

    def __init__(self, block: nn.Module, rotary: nn.Module | None, window: int | None) -> None:
        super().__init__()
        self.block = block
        self.rotary = None if rotary is None else Unrounded(rotary)
        self.window = window

    def forward(self, hidden: Tensor, padding: Tensor | None = None) -> Stream:
        """The next hidden state, and the padding where there is some."""
        mask = causal(hidden, padding, self.window)
        if self.rotary is None:
            hidden = self.block(hidden, attention_mask=mask)
        else:
            positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
            hidden = self.block(
                hidden,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=self.rotary(hidden, positions),
            )
        return (hidden,) if padding is None else (hidden, padding)


def _block(
    config: PreTrainedConfig,
    index: int,
    blocks: str,
    rotary: str | None,
    template: PreTrainedModel,
) -> nn.Module:
    made = block_class(template, blocks)(config, index)
    positions = None if rotary is None else template.base_model.get_submodule(rotary)
    return Block(made, positions, _window(config, index))


def _window(config: PreTrainedConfig, index: int) -> int | None:
    """To how many positions a block attends; None for all."""
    kinds = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    return window if kinds is None or kinds[index] == "sliding_attention" else None


class Norm(nn.Module):
    """The norm after the last block."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, hidden: Tensor, _: Tensor | None = None) -> Tensor:
        """The hidden state alone, normed."""
        normed: Tensor = self.norm(hidden)
        return normed


def _norm(name: str, template: PreTrainedModel) -> nn.Module:
    return Norm(template.get_submodule(name))
