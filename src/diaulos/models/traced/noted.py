"""Attention that is noted instead of computed, and torch's own function for it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from diaulos.models.operations import Attention
from diaulos.models.traced.recorder import Recorder


def noted(
    query: Tensor, key: Tensor, value: Tensor, attention: Attention, recorder: Recorder
) -> Tensor:
    """What attention would give, [samples, queries, heads, size]; the recorder knows of it."""
    output: Tensor = _Noted.apply(query, key, value, attention, recorder)  # type: ignore[no-untyped-call]
    return output


class NotedAttention(TorchFunctionMode):
    """Notes calls of torch's attention while it is entered."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is functional.scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _attend(  # noqa: PLR0917 - as torch has it
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,  # noqa: ARG002 - costs what none costs
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002
        scale: float | None = None,  # noqa: ARG002
        enable_gqa: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> Tensor:
        four = [
            tensor if tensor.dim() == 4 else tensor.unsqueeze(-3) for tensor in (query, key, value)
        ]
        shapes = [tensor.shape for tensor in four]
        attention = Attention(
            samples=shapes[0][0],
            heads=shapes[0][1],
            key_value_heads=shapes[1][1],
            queries=shapes[0][2],
            keys=shapes[1][2],
            score_size=shapes[0][3],
            value_size=shapes[2][3],
            causal=is_causal,
            dropout=dropout_p > 0,
        )
        output = noted(four[0], four[1], four[2], attention, self._recorder).transpose(1, 2)
        return output if query.dim() == 4 else output.squeeze(-3)


class _Noted(torch.autograd.Function):
    """Keeps what a kernel of attention keeps, and gives tensors of the right shapes."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as autograd calls it
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention: Attention,
        recorder: Recorder,
    ) -> Tensor:
        output = query.new_empty(
            attention.samples, attention.queries, attention.heads, attention.value_size
        )
        ctx.save_for_backward(query, key, value, output)
        ctx.attention, ctx.recorder = attention, recorder
        recorder.attend(attention, [query, key, value], [output])
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        made = [torch.empty_like(tensor) for tensor in saved[:3]]
        ctx.recorder.attend(ctx.attention, [gradient, *saved], made)
        return (*made, None, None)
