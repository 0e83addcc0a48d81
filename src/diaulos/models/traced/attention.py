"""Attention as transformers calls it, noted instead of computed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from diaulos.models.operations import Attention
from diaulos.models.traced.noted import noted
from diaulos.models.traced.recorder import Recorder

AttentionFunction = Callable[..., tuple[Tensor, None]]

_NOTED = "diaulos_noted"
"""What transformers calls it."""


def note_attention(model: PreTrainedModel, recorder: Recorder) -> None:
    """Let the recorder know of the attention of a model.

    A model without transformers' interface of attention calls torch's, or computes it by products.
    """
    if model._supports_sdpa or model._supports_attention_backend:  # noqa: SLF001
        AttentionInterface.register(_NOTED, _noted_attention(recorder))
        AttentionMaskInterface.register(_NOTED, _window_mark)
        model.set_attn_implementation(_NOTED)


def _noted_attention(recorder: Recorder) -> AttentionFunction:
    """A function that takes the place of attention and tells the recorder of it.

    `attention_mask` is what `_window_mark` made: its length is the window.
    """

    def attend(  # noqa: PLR0917 - as transformers calls it
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        is_causal: bool | None = None,  # noqa: FBT001
        **_: Any,
    ) -> tuple[Tensor, None]:
        attention = Attention(
            samples=query.shape[0],
            heads=query.shape[1],
            key_value_heads=key.shape[1],
            queries=query.shape[2],
            keys=key.shape[2],
            score_size=query.shape[3],
            value_size=value.shape[3],
            causal=getattr(module, "is_causal", True) if is_causal is None else is_causal,
            window=attention_mask.shape[0] if attention_mask is not None else sliding_window,
            dropout=dropout > 0,
        )
        return noted(query, key, value, attention, recorder), None

    return attend


def _window_mark(*_: Any, local_size: int | None = None, **__: Any) -> Tensor | None:
    """In place of a mask: None, or where positions see so many others, a tensor of this length."""
    return None if local_size is None else torch.empty(local_size, device="meta")
