"""Seconds of layers: what adds, what divides, what hides."""

from dataclasses import replace

import pytest

from diaulos.pricing.analytic.options import PRECISIONS, LayerOptions, Recompute, Runtime
from diaulos.pricing.analytic.seconds import LayerSeconds
from diaulos.pricing.analytic.times import layer_seconds
from diaulos.pricing.devices.attention import AttentionKind
from diaulos.pricing.devices.collectives import all_reduce_seconds
from tests.pricing.analytic.layers import block_of, gpt_block, groups, options


def priced(chosen: LayerOptions) -> LayerSeconds:
    return layer_seconds(gpt_block(), chosen, groups(chosen))


def test_full_recomputation_adds_a_forward() -> None:
    """The backward grows by the forward with its exchanges, and the FLOPs by the model's."""
    none, full = (
        priced(options(tensor_parallel=8, recompute=way))
        for way in (Recompute.NONE, Recompute.FULL)
    )
    assert full.forward == none.forward
    assert full.backward.total == pytest.approx(none.backward.total + none.forward.total)
    assert full.recomputed_flops == gpt_block().forward_flops
    assert full.again == none.forward


def test_selective_recomputation_adds_attention() -> None:
    """With plain attention selective recomputation costs more than nothing, less than all."""
    steps = [
        priced(options(recompute=way, attention=AttentionKind.PLAIN)).total
        for way in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    ]
    assert steps[0] < steps[1] < steps[2]
    assert steps[1] - steps[0] < 0.2 * steps[0]


def test_four_all_reduces_a_block() -> None:
    """Tensor parallelism sums twice forward and twice backward (Shoeybi et al., 2019)."""
    bare = options(tensor_parallel=8, runtime=Runtime(hides_tensor_parallel=False))
    found = priced(bare)
    each = all_reduce_seconds(groups(bare).tensor, 4 * 2048 * 6144 * 2)
    assert found.forward.tensor == pytest.approx(2 * each)
    assert found.backward.tensor == pytest.approx(2 * each)


def test_sequence_parallelism_moves_as_much() -> None:
    """Reduce-scatter and all-gather together move what an all-reduce does; one gather is added."""
    runtime = Runtime(hides_tensor_parallel=False)
    plain, shared = (
        priced(options(tensor_parallel=8, sequence_parallel=share, runtime=runtime))
        for share in (False, True)
    )
    assert shared.forward.tensor == pytest.approx(plain.forward.tensor, rel=0.05)
    assert shared.backward.tensor == pytest.approx(1.5 * plain.backward.tensor, rel=0.05)


def test_what_hides_is_not_waited_for() -> None:
    """Exchanges beside the products of the backward take no time of their own where these last."""
    hidden, bare = (
        priced(options(tensor_parallel=8, runtime=Runtime(hides_tensor_parallel=hides)))
        for hides in (True, False)
    )
    assert hidden.backward.tensor < bare.backward.tensor
    assert hidden.forward == bare.forward


def test_context_parallelism_divides_the_work() -> None:
    """Half the positions take about half the time, and keys and values hide behind attention."""
    one, two = (priced(options(context_parallel=degree)) for degree in (1, 2))
    assert two.forward.compute == pytest.approx(one.forward.compute / 2, rel=0.1)
    assert two.forward.context < 0.1 * two.forward.compute


def test_experts_exchange_tokens() -> None:
    """Expert parallelism sends tokens to their experts and back, both ways."""
    block = block_of("mixtral-8x7b")
    one, four = (options(expert_parallel=degree) for degree in (1, 4))
    alone, spread = (layer_seconds(block, some, groups(some)) for some in (one, four))
    assert alone.forward.expert == 0
    assert spread.forward.expert == spread.backward.expert > 0


def test_kernels_that_are_not_fused_take_longer() -> None:
    """RMSNorm and gates step by step move more bytes."""
    block = block_of("llama-3-8b")
    ways = [options(runtime=Runtime(fused=fused)) for fused in (True, False)]
    fused, apart = (layer_seconds(block, way, groups(way)) for way in ways)
    assert fused.forward.compute < apart.forward.compute
    assert fused.backward.compute < apart.backward.compute


def test_fp8_pays_for_casts() -> None:
    """Products in fp8 are faster than in bf16, but not twice as fast."""
    block = block_of("llama-3-70b", microbatch_size=4)
    ways = [options(precision=PRECISIONS[name]) for name in ("bf16", "fp8")]
    some = [layer_seconds(block, way, groups(way, cluster="8xH100-80GB")) for way in ways]
    assert 1.1 < some[0].total / some[1].total < 2


def test_halves_that_run_apart_both_compute_again() -> None:
    """A backward in two halves repeats the forward twice with full recomputation."""
    full = priced(options(recompute=Recompute.FULL))
    apart = full.with_halves_apart()
    assert apart.backward.total == pytest.approx(full.backward.total + full.forward.total)
    assert apart.recomputed_flops == 2 * full.recomputed_flops
    none = priced(options())
    assert replace(none.with_halves_apart(), again=none.again) == none
