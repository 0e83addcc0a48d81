"""What a device keeps is what the papers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.models.operations import MatrixProduct, Region, Split
from diaulos.pricing.analytic.options import Recompute
from diaulos.pricing.analytic.shares import (
    activation_bytes,
    local_product,
    parameter_share,
    temporary_bytes,
)
from diaulos.pricing.devices.attention import AttentionKind
from tests.pricing.analytic.layers import block_of, gpt_block, options

SBH = 4 * 2048 * 6144
SCORES = 64 * 2048 / 6144
"""a s / h"""


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize(
    ("way", "shared", "formula"),
    [
        (Recompute.NONE, False, lambda t: 10 + 24 / t + 5 * SCORES / t),
        (Recompute.NONE, True, lambda t: 34 / t + 5 * SCORES / t),
        (Recompute.SELECTIVE, False, lambda t: 10 + 24 / t),
        (Recompute.SELECTIVE, True, lambda t: 34 / t),
        (Recompute.FULL, False, lambda _: 2),
    ],
)
def test_activations_are_those_of_the_formulas(tensor, way, shared, formula) -> None:
    """Bytes of a block are those of table 2 of Korthikanti et al. (MLSys 2023)."""
    found = activation_bytes(
        gpt_block(),
        options(
            tensor_parallel=tensor,
            sequence_parallel=shared,
            recompute=way,
            attention=AttentionKind.PLAIN,
        ),
    )
    assert found == pytest.approx(SBH * formula(tensor))


def test_what_is_recomputed_lives_for_a_moment() -> None:
    """With full recomputation a block's activations are temporary, all but its input."""
    kept = activation_bytes(gpt_block(), options())
    full = options(recompute=Recompute.FULL)
    again = activation_bytes(gpt_block(), full) + temporary_bytes(gpt_block(), full)
    assert again == pytest.approx(kept)
    assert temporary_bytes(gpt_block(), options()) == 0


def test_flash_attention_keeps_no_scores() -> None:
    """Flash attention keeps four bytes for each query and head, plain five for each score."""
    flash, plain = (
        activation_bytes(gpt_block(), options(attention=kind)) for kind in AttentionKind
    )
    assert plain - flash == pytest.approx(4 * 64 * 2048 * (5 * 2048 - 4))


@given(
    rows=st.integers(1, 10_000),
    inner=st.integers(1, 10_000),
    columns=st.integers(1, 10_000),
    split=st.sampled_from(Split),
    tensor=st.integers(1, 16),
    context=st.integers(1, 8),
)
def test_local_products_cover_the_whole(  # noqa: PLR0917
    rows: int, inner: int, columns: int, split: Split, tensor: int, context: int
) -> None:
    """All devices together compute at least the product; exactly it where sizes divide."""
    product = MatrixProduct(name="p", rows=rows, inner=inner, columns=columns, split=split)
    ways = options(tensor_parallel=tensor, context_parallel=context, sequence_parallel=True)
    local_rows, local_inner, local_columns, count = local_product(product, ways)
    local = local_rows * local_inner * local_columns * count
    whole = rows * inner * columns
    assert local * tensor * context >= whole
    if split is Split.COLUMNS and columns % tensor == 0 and rows % context == 0:
        assert local * tensor * context == whole


def test_experts_are_shared_by_count_and_by_columns() -> None:
    """A device has E/e experts with e times the tokens, each split over t devices."""
    up = next(p for p in block_of("mixtral-8x7b").products if p.name == "expert_up")
    rows, inner, columns, count = local_product(up, options(expert_parallel=4, tensor_parallel=2))
    assert (rows, inner, columns, count) == (2048 * 2 // 8 * 4, 4096, 14336, 2)
    share = parameter_share(Region.EXPERTS, options(expert_parallel=4, tensor_parallel=2))
    assert share == 1 / 8
