"""Seconds of attention."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.device import Device, DType
from diaulos.pricing.devices.attention import (
    AttentionKind,
    Direction,
    attended_pairs,
    attention_seconds,
)
from diaulos.pricing.devices.operations import matrix_product_seconds, memory_bound_seconds
from tests.pricing.devices.plain_device import PLAIN

A100 = known_device("A100-80GB").device
H100 = known_device("H100-80GB").device


def seconds(
    device: Device = A100,
    *,
    kind: AttentionKind = AttentionKind.FLASH,
    direction: Direction = Direction.FORWARD,
    length: int = 8192,
    head: int = 128,
    causal: bool = False,
    window: int | None = None,
    dropout: bool = False,
) -> float:
    """Of one sample with 16 heads in bf16."""
    return attention_seconds(
        device,
        samples=1,
        heads=16,
        queries=length,
        keys=length,
        head_size=head,
        value_size=head,
        causal=causal,
        window=window,
        dropout=dropout,
        dtype=DType.BF16,
        kind=kind,
        direction=direction,
    )


def counted(queries: int, keys: int, *, causal: bool, window: int | None) -> int:
    """Pairs by looking at each, the last query standing at the last key."""
    shift = keys - queries
    return sum(
        (not causal or key <= query + shift)
        and (window is None or not causal or key > query + shift - window)
        for query, key in product(range(queries), range(keys))
    )


@given(st.integers(1, 30), st.integers(0, 30), st.none() | st.integers(1, 40))
def test_causal_pairs_are_those_that_the_mask_leaves(
    queries: int, more: int, window: int | None
) -> None:
    """The closed form equals counting, for any window and keys before the first query."""
    keys = queries + more
    pairs = attended_pairs(queries=queries, keys=keys, causal=True, window=window)
    assert pairs == counted(queries, keys, causal=True, window=window)


def test_without_a_mask_all_pairs_count() -> None:
    """But for what a window leaves out."""
    assert attended_pairs(queries=3, keys=5, causal=False) == 15
    assert attended_pairs(queries=3, keys=5, causal=False, window=2) == 6


def test_fused_attention_is_as_published() -> None:
    """FlashAttention-2: about 220 TFLOP/s on the A100, 370 on the H100, heads of 128, forward."""
    operations = 4 * 16 * 8192**2 * 128
    assert operations / seconds(A100) == pytest.approx(220e12, rel=0.05)
    assert operations / seconds(H100) == pytest.approx(370e12, rel=0.05)
    assert operations / 2 / seconds(A100, head=64) == pytest.approx(185e12, rel=0.05)


def test_the_mask_halves_fused_attention_and_not_plain() -> None:
    """Long causal sequences take little more than half with flash; plain computes all scores."""
    whole, half = seconds(length=32_768), seconds(length=32_768, causal=True)
    assert 0.5 * whole < half < 0.51 * whole
    plain = AttentionKind.PLAIN
    assert seconds(kind=plain, causal=True) == seconds(kind=plain)


def test_short_causal_sequences_save_nothing() -> None:
    """A sequence of one block has nothing to leave out."""
    assert seconds(length=128, causal=True) == seconds(length=128)


def test_a_window_bounds_the_work() -> None:
    """With a window of 1024, twice the sequence takes about twice, not four times."""
    short, long = (seconds(length=length, causal=True, window=1024) for length in (16_384, 32_768))
    assert long / short == pytest.approx(2, rel=0.05)


def test_backward_computes_two_and_a_half_times_as_much() -> None:
    """5 products instead of 2, at the rate of the backward."""
    forward, backward = (seconds(PLAIN, direction=each) for each in Direction)
    launch = PLAIN.launch_seconds
    assert (backward - launch) / (forward - launch) == pytest.approx(2.5 * 0.4 / 0.2)


@pytest.mark.parametrize(
    ("direction", "products", "passes"), [("forward", 1, 2), ("backward", 2, 3)]
)
def test_plain_attention_is_products_and_a_softmax(
    direction: str, products: int, passes: int
) -> None:
    """Two batched products each way and direction, and the scores as often as they are moved."""
    sizes = {"rows": 512, "dtype": DType.BF16, "count": 16}
    scores = matrix_product_seconds(A100, inner=128, columns=512, **sizes)
    mixed = matrix_product_seconds(A100, inner=512, columns=128, **sizes)
    softmax = memory_bound_seconds(A100, size_bytes=passes * 16 * 512**2 * 2)
    taken = seconds(
        kind=AttentionKind.PLAIN, length=512, causal=True, direction=Direction(direction)
    )
    assert taken == pytest.approx(products * (scores + mixed) + softmax)


def test_plain_attention_pays_for_its_scores() -> None:
    """It is slower than flash wherever sequences are long, and dropout makes it slower still."""
    plain = AttentionKind.PLAIN
    for direction in Direction:
        assert seconds(kind=plain, direction=direction) > seconds(direction=direction)
        assert seconds(kind=plain, direction=direction, dropout=True) > seconds(
            kind=plain, direction=direction
        )
