"""A Hugging Face model as layers that can be trained in stages."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from diaulos.errors import InputError
from diaulos.models.decoders.operations import LOSS
from diaulos.models.gpt import summed_cross_entropy
from diaulos.models.huggingface.bert import bert
from diaulos.models.huggingface.decoders import gpt2, planned_decoder
from diaulos.models.huggingface.layout import LayerLayout
from diaulos.models.huggingface.recipes import LayerRecipe, one_block
from diaulos.models.huggingface.splits import tensor_split
from diaulos.models.huggingface.t5 import shared_biases, t5
from diaulos.models.huggingface.weights import WeightFolder, open_weights
from diaulos.models.layers import LayeredModel, LayerSpec, Reduction, Stream


@dataclass(frozen=True, slots=True)
class _Family:
    classes: Any
    """transformers' mapping from configs to models."""
    layouts: Callable[[PreTrainedConfig, PreTrainedModel], Iterator[LayerLayout]]
    has_decoder_tokens: bool = False
    has_positions: bool = False
    """Whether each position has an embedding of its own."""
    more_ties: Callable[[PreTrainedConfig], Mapping[str, str]] = lambda _: {}


_DECODER = _Family(MODEL_FOR_CAUSAL_LM_MAPPING, planned_decoder)
_T5 = _Family(
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, t5, has_decoder_tokens=True, more_ties=shared_biases
)
_FAMILIES: Mapping[str, _Family] = MappingProxyType(
    {
        "bert": _Family(MODEL_FOR_MASKED_LM_MAPPING, bert, has_positions=True),
        "gemma": _DECODER,
        "gpt2": _Family(MODEL_FOR_CAUSAL_LM_MAPPING, gpt2, has_positions=True),
        "llama": _DECODER,
        "mistral": _DECODER,
        "qwen2": _DECODER,
        "qwen3": _DECODER,
        "t5": _Family(
            MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
            t5,
            has_decoder_tokens=True,
            more_ties=shared_biases,
        ),
    }
)


def read_pretrained(path: Path, *, sequence_length: int, padded: bool = False) -> LayeredModel:
    """The model of a `config.json`, or of a folder in Hugging Face's layout with its weights.

    Without files of weights they are drawn by layer name, as the model draws them. An unknown
    type of model is an `InputError`.
    """
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError("is not there", "a model is a config.json or its folder", where=str(file))
    try:
        config = AutoConfig.from_pretrained(file)
    except (ValueError, KeyError) as error:
        message = str(error).splitlines()[0]
        raise InputError(f"cannot be read as a config: {message}", where=str(file)) from None
    weights = open_weights(path) if path.is_dir() else None
    try:
        return pretrained(config, sequence_length=sequence_length, padded=padded, weights=weights)
    except InputError as error:
        raise error.at(str(file)) from None


def pretrained(
    config: PreTrainedConfig,
    *,
    sequence_length: int,
    padded: bool = False,
    weights: WeightFolder | None = None,
) -> LayeredModel:
    """The model of a transformers config, as layers.

    A microbatch's inputs are tokens, for T5 the encoder's and the decoder's, and behind them,
    where `padded`, what of the (encoder's) tokens is no padding, [samples, positions].
    """
    family = _family(config, sequence_length)
    config = with_torch_attention(config)
    model_class: type[PreTrainedModel] = family.classes[type(config)]
    with torch.device("meta"):
        template = model_class(one_block(config))
    layouts = list(family.layouts(config, template))
    recipes = {
        layout.name: LayerRecipe(
            model_class=model_class,
            config=config,
            make=layout.make,
            places=layout.places,
            weights=weights,
        )
        for layout in layouts
    }
    ties = {**_ties(template, recipes), **family.more_ties(config)}
    specs = [
        LayerSpec(
            name=layout.name,
            build=_borrowing(layout.name, recipes, ties),
            tensor_split=tensor_split(config, template, layout),
        )
        for layout in layouts
    ]
    # What graphs of a config call the loss: a layer that has no weights, and changes nothing.
    split = tensor_split(config, template, None)
    return LayeredModel(
        layers=(*specs, LayerSpec(name=LOSS, build=nn.Identity, tensor_split=split)),
        loss=summed_cross_entropy,
        example=partial(
            _example,
            vocabulary=config.vocab_size,
            length=sequence_length,
            inputs=1 + family.has_decoder_tokens,
            padded=padded,
        ),
        tokens_per_sample=sequence_length,
        reduction=Reduction.MASKED_MEAN,
        ties=ties,
        settings={"model": config.model_type, "sequence_length": str(sequence_length)},
    )


def _family(config: PreTrainedConfig, sequence_length: int) -> _Family:
    family = _FAMILIES.get(config.model_type)
    if family is None:
        raise InputError(
            f"model_type is {config.model_type!r}",
            f"the trainer cuts models of {', '.join(sorted(_FAMILIES))} into layers by itself",
            "give it as module:factory, cut by diaulos.models.exported",
        )
    for key in ("is_decoder", "add_cross_attention"):
        if config.model_type != "t5" and getattr(config, key, False):
            raise InputError(f"{key} is true", f"{config.model_type} is trained on its own tokens")
    most = getattr(config, "max_position_embeddings", sequence_length)
    if family.has_positions and sequence_length > most:
        raise InputError(f"sequence_length is {sequence_length}", f"the model has {most} positions")
    return family


def with_torch_attention(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config with torch's own attention, without caches of keys and values."""
    changed = type(config).from_dict(config.to_dict(), attn_implementation="sdpa")
    changed.use_cache = False
    return changed


def _ties(template: PreTrainedModel, recipes: Mapping[str, LayerRecipe]) -> dict[str, str]:
    """The model's tied parameters, by the names that layers give them."""
    names = {
        recipe.stored_name(own): f"{layer}.{own}"
        for layer, recipe in recipes.items()
        for own in _parameter_names(recipe)
    }
    stated: Mapping[str, str] = template.all_tied_weights_keys
    return {
        names[tied]: names[owner]
        for tied, owner in stated.items()
        if tied in names and owner in names
    }


def _parameter_names(recipe: LayerRecipe) -> list[str]:
    with torch.device("meta"):
        return [name for name, _ in recipe().named_parameters()]


def _borrowing(
    layer: str, recipes: Mapping[str, LayerRecipe], ties: Mapping[str, str]
) -> LayerRecipe:
    """The recipe of a layer, whose tied parameters are stored under their owner's name."""
    borrowed, recipe = {}, recipes[layer]
    for tied, owner in ties.items():
        if tied.startswith(f"{layer}."):
            home, _, own = owner.partition(".")
            borrowed[tied.removeprefix(f"{layer}.")] = recipes[home].stored_name(own)
    return replace(recipe, places={**borrowed, **recipe.places}) if borrowed else recipe


def _example(
    microbatch_size: int, *, vocabulary: int, length: int, inputs: int, padded: bool
) -> tuple[Stream, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (microbatch_size, length)
    tokens = [torch.randint(vocabulary, shape, generator=generator) for _ in range(inputs + 1)]
    padding = (torch.ones(shape, dtype=torch.bool),) if padded else ()
    return (*tokens[:-1], *padding), tokens[-1]
