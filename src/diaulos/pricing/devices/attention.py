"""Seconds of attention on a device: fused ("flash"), or plain with its scores in memory."""

from enum import Enum

from diaulos.clusters.device import Device, DType
from diaulos.pricing.devices.operations import matrix_product_seconds, memory_bound_seconds


class AttentionKind(Enum):
    """How attention is computed; the value is how flags write it."""

    FLASH = "flash"
    """In one kernel, in blocks, without the scores of masked blocks (Dao et al., 2022)."""
    PLAIN = "plain"
    """As two batched products with a softmax of all scores between them."""


class Direction(Enum):
    """The way through the layers."""

    FORWARD = "forward"
    BACKWARD = "backward"


_REFERENCE_HEAD = 128
_SOFTMAX_AS_HEAD = 30
"""What the exponentials of fused attention take, as if heads were so much larger: of
FlashAttention-2's rates with heads of 64 and of 128 on the A100 (Dao, 2023, figures 4-6)."""
_BACKWARD_PRODUCTS = 5
"""Of fused attention, which computes the scores again; the forward has 2."""
_SCORE_PASSES = {Direction.FORWARD: 2, Direction.BACKWARD: 3}
"""How often the scores are read or written: the softmax reads the scores and writes the shares;
its backward reads the shares and their gradient and writes the scores' gradient."""
_DROPOUT_AS_HEAD = 80
"""What drawing a random number for each pair takes in the kernel, once each way, as if heads were
so much larger; of the stages of vocab_stage_times_pp8.csv (docs/prices.md)."""
_DROPOUT_PASSES = {Direction.FORWARD: 2.5, Direction.BACKWARD: 2.5}
"""Of dropout on the shares, the mask of one byte included."""


def attended_pairs(*, queries: int, keys: int, causal: bool, window: int | None = None) -> float:
    """Pairs of a query and a key that it attends to.

    The last query is the last key's; with a window, a query attends to so many keys at most.
    """
    most = keys if window is None else min(window, keys)
    if not causal:
        return float(queries * most)
    first = keys - queries + 1  # keys that the first query may attend to
    growing = max(0, min(queries, most - first))  # queries that attend to fewer than `most`
    return growing * first + growing * (growing - 1) / 2 + (queries - growing) * most


def attention_seconds(
    device: Device,
    *,
    samples: int,
    heads: int,
    queries: int,
    keys: int,
    head_size: int,
    value_size: int,
    causal: bool,
    dtype: DType,
    kind: AttentionKind,
    direction: Direction,
    window: int | None = None,
    dropout: bool = False,
) -> float:
    """Seconds from queries, keys and values to what each query takes, or back."""
    count = samples * heads
    if kind is AttentionKind.FLASH:
        block = device.efficiency.attention_block
        pairs = count * _computed_pairs(block, queries, keys, causal=causal, window=window)
        drawing = _DROPOUT_AS_HEAD if dropout else 0
        size = (head_size + value_size) / 2
        return _fused_seconds(
            device, dtype, direction, pairs=pairs, head_size=size, drawing=drawing
        )
    products = 1 if direction is Direction.FORWARD else 2
    scores = matrix_product_seconds(
        device, rows=queries, inner=head_size, columns=keys, dtype=dtype, count=count
    )
    mixed = matrix_product_seconds(
        device, rows=queries, inner=keys, columns=value_size, dtype=dtype, count=count
    )
    pass_bytes = count * queries * keys * dtype.bytes
    softmax = memory_bound_seconds(device, size_bytes=pass_bytes * _SCORE_PASSES[direction])
    dropped = memory_bound_seconds(
        device, size_bytes=pass_bytes * _DROPOUT_PASSES[direction] if dropout else 0
    )
    return products * (scores + mixed) + softmax + dropped


def _computed_pairs(
    block: float, queries: int, keys: int, *, causal: bool, window: int | None
) -> float:
    """Pairs that fused attention computes: those attended to, and half of each cut block."""
    every = float(queries * keys)
    pairs = attended_pairs(queries=queries, keys=keys, causal=causal, window=window)
    edges = int(causal) + int(window is not None and window < keys)
    return min(every, pairs + edges * queries * block / 2)


def _fused_seconds(
    device: Device,
    dtype: DType,
    direction: Direction,
    *,
    pairs: float,
    head_size: float,
    drawing: float,
) -> float:
    forward = direction is Direction.FORWARD
    share = device.efficiency.attention_forward if forward else device.efficiency.attention_backward
    share *= (_REFERENCE_HEAD + _SOFTMAX_AS_HEAD) / _REFERENCE_HEAD
    products = 2 if forward else _BACKWARD_PRODUCTS
    operations = 2 * pairs * (products * (head_size + _SOFTMAX_AS_HEAD) + 2 * drawing)
    return device.launch_seconds + operations / (device.peak_flops_per_second(dtype) * share)
