"""A model of transformers on the meta device: built from its config, and what it is fed."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from diaulos.errors import InputError
from diaulos.models.operations import Split, Workload
from diaulos.models.traced.layers import SplitPlan
from diaulos.models.traced.tracer import in_short

_COUNTS = ("hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size")


def build_model(config: PretrainedConfig) -> PreTrainedModel:
    """The model that a config describes, without memory for its parameters."""
    _check(config)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    chosen = _model_class(config)
    with torch.device("meta"):
        try:
            model: PreTrainedModel = chosen._from_config(  # type: ignore[no-untyped-call]  # noqa: SLF001
                config,
                dtype=torch.bfloat16,
            )
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RuntimeError,
        ) as error:
            raise InputError(
                f"transformers makes no {chosen.__name__} of the config",
                f"it says {in_short(error)}",
            ) from error
    model.train()
    return model


def model_inputs(model: PreTrainedModel, workload: Workload) -> dict[str, Any]:
    """Tokens, or images, of a microbatch; the encoder and the decoder get as many tokens."""
    samples, length = workload.microbatch_size, workload.sequence_length
    if model.main_input_name == "pixel_values":
        config = model.config
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        shape = (samples, config.num_channels, height, width)
        return {"pixel_values": torch.empty(shape, dtype=model.dtype, device="meta")}
    tokens = torch.empty((samples, length), dtype=torch.long, device="meta")
    inputs: dict[str, Any] = {model.main_input_name: tokens}
    taken = inspect.signature(model.forward).parameters
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    if "attention_mask" in taken:  # without one, transformers looks for packed samples
        inputs["attention_mask"] = torch.empty_like(tokens)
    if "use_cache" in taken:
        inputs["use_cache"] = False
    return inputs


def whole_classes(model: PreTrainedModel) -> frozenset[str]:
    """The names of the classes of modules that the model says not to cut."""
    return frozenset(model._no_split_modules or ())  # noqa: SLF001


def find_head(model: PreTrainedModel, blocks: frozenset[str]) -> tuple[str, nn.Module] | None:
    """The projection to scores by name: what the model says it is, or its last linear module."""
    stated = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    found = None
    for name, module in model.named_modules():
        if stated is not None and module is stated:
            return name, module
        inner = any(name.startswith(f"{path}.") for path in blocks)
        if isinstance(module, nn.Linear) and not inner:
            found = (name, module)
    return found


def split_plan(model: PreTrainedModel, names: Mapping[Tensor, str], head: str | None) -> SplitPlan:
    """What the model's own plan says of its parameters; its head is split by columns."""
    styles: dict[str, str] = {}
    products: dict[str, Split] = {}
    for alias, parameter in model.named_parameters(remove_duplicate=False):
        module = alias.rpartition(".")[0]
        for pattern, style in (model.tp_plan or {}).items():
            if fnmatchcase(module, pattern) or fnmatchcase(module, f"*.{pattern}"):
                styles[names[parameter]] = style
        if module == head:
            products[names[parameter]] = Split.COLUMNS
    for name, style in styles.items():
        if "colwise" in style:
            products[name] = Split.COLUMNS
        elif style.startswith("rowwise"):
            products[name] = Split.INNER
    tables = {name for name, style in styles.items() if "embedding" in style}
    with suppress(NotImplementedError):  # of models of images, some do not say
        tokens = model.get_input_embeddings()
        if isinstance(tokens, nn.Embedding):
            tables.add(names[tokens.weight])
    return SplitPlan(products=products, tables=frozenset(tables))


def _model_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """What `architectures` names; else what the kind of model is trained as."""
    for name in config.architectures or ():
        stated = getattr(transformers, name, None)
        if stated is not None:
            return stated  # type: ignore[no-any-return]
    kind = type(config)
    tasks = (
        transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        transformers.MODEL_FOR_MASKED_LM_MAPPING,
        transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
        transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    )
    for task in tasks:
        if kind in task:
            found: Any = task[kind]
            return found[0] if isinstance(found, tuple) else found  # type: ignore[no-any-return]
    raise InputError(
        f"model_type is {config.model_type!r}, which transformers trains on no known task",
        "it must be a language model or classify images",
    )


def _check(config: PretrainedConfig) -> None:
    """Counts above zero, and heads that divide the hidden size; messages have the file's keys."""
    keys = {name: config.attribute_map.get(name, name) for name in _COUNTS}
    for name, key in keys.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and value < 1:
            raise InputError(f"{key} is {value}", "it must be at least 1")
    hidden, heads = (
        getattr(config, "hidden_size", None),
        getattr(config, "num_attention_heads", None),
    )
    own_size = any(getattr(config, name, None) for name in ("head_dim", "d_kv", "v_head_dim"))
    if isinstance(hidden, int) and isinstance(heads, int) and not own_size and hidden % heads:
        raise InputError(
            f"{keys['num_attention_heads']} is {heads} and {keys['hidden_size']} is {hidden}",
            "the second must be a multiple of the first",
        )
