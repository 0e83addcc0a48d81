"""A trained model in Hugging Face's layout: config.json, safetensors by stage, and their index."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedConfig

from diaulos.errors import InputError
from diaulos.models.huggingface.recipes import LayerRecipe
from diaulos.models.huggingface.weights import INDEX
from diaulos.models.layers import LayeredModel, meta_layer


def stored_names(model: LayeredModel) -> dict[str, str]:
    """The names in Hugging Face's layout of all parameters, frozen ones included, by full name.

    Without those that are tied to another. An `InputError` if the model is none of Hugging Face's.
    """
    _config(model)
    names = {}
    for spec in model.layers:
        if isinstance(spec.build, LayerRecipe):
            for own, _ in meta_layer(spec).named_parameters():
                if f"{spec.name}.{own}" not in model.ties:
                    names[f"{spec.name}.{own}"] = spec.build.stored_name(own)
    return names


def stored_shapes(model: LayeredModel) -> dict[str, tuple[int, ...]]:
    """The shapes of all parameters by their names in Hugging Face's layout."""
    names = stored_names(model)
    return {
        names[f"{spec.name}.{own}"]: tuple(parameter.shape)
        for spec in model.layers
        for own, parameter in meta_layer(spec).named_parameters()
        if f"{spec.name}.{own}" in names
    }


def shard_name(shard: int, shards: int) -> str:
    """What the file of one of so many shards is called."""
    return f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"


def write_shard(folder: Path, shard: int, shards: int, tensors: Mapping[str, Tensor]) -> None:
    """Write the tensors of one of so many shards, by their names in the layout."""
    contiguous = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    save_file(contiguous, folder / shard_name(shard, shards), metadata={"format": "pt"})


def write_index(
    folder: Path, model: LayeredModel, shard_of_layer: Mapping[str, int], dtype: torch.dtype
) -> None:
    """Write the config and the index of the files of all shards."""
    config = copy.deepcopy(_config(model))
    config.dtype = dtype
    config.save_pretrained(folder)
    shards = max(shard_of_layer.values()) + 1
    names = stored_names(model)
    files = {
        stored: shard_name(shard_of_layer[full.partition(".")[0]], shards)
        for full, stored in names.items()
    }
    count = sum(torch.Size(shape).numel() for shape in stored_shapes(model).values())
    index = {"metadata": {"total_size": count * dtype.itemsize}, "weight_map": files}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _config(model: LayeredModel) -> PreTrainedConfig:
    for spec in model.layers:
        if isinstance(spec.build, LayerRecipe):
            return spec.build.config
    raise InputError(
        "the model is none of Hugging Face's", "only those have a layout for transformers to read"
    )
