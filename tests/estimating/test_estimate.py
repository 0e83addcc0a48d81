"""Parts add up, and what is known of the ways to train shows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.clusters.expression import parse_cluster
from diaulos.errors import InputError
from diaulos.estimating.estimate import Estimate, estimate
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.options import PRECISIONS, Recompute
from tests.estimating.models import configuration, gpt, published

GPT = gpt(hidden=2048, layers=8, heads=16)
A100S = parse_cluster("2x8xA100-80GB")


@settings(max_examples=25, deadline=None)
@given(
    tensor=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([1, 2, 4]),
    recompute=st.sampled_from(Recompute),
    shared=st.booleans(),
    sharding=st.sampled_from(Sharding),
    schedule=st.sampled_from(["1f1b", "gpipe", "zero-bubble"]),
)
def test_parts_add_up(
    *,
    tensor: int,
    pipeline: int,
    recompute: Recompute,
    shared: bool,
    sharding: Sharding,
    schedule: str,
) -> None:
    """The parts are the step, none is negative, and MFU is at most HFU and below one."""
    data = 16 // (tensor * pipeline)
    found = estimate(
        GPT,
        A100S,
        configuration(
            tensor=tensor,
            pipeline=pipeline,
            data=data,
            batch_size=8 * data,
            recompute=recompute,
            sequence_parallel=shared,
            sharding=sharding,
            schedule=schedule,
        ),
    )
    assert found.parts.total == found.step_seconds
    parts = found.parts
    assert min(parts.compute, parts.bubble, parts.pipeline, parts.data_parallel) >= 0
    assert 0 < found.mfu <= found.hfu < 1
    assert (found.mfu == found.hfu) is (recompute is Recompute.NONE)


def eight(**changes: object) -> Estimate:
    return estimate(published("llama-3-8b"), parse_cluster("8xH100-80GB"), configuration(**changes))


def test_recomputation_trades_time_for_memory() -> None:
    """More recomputation never makes a step shorter or its activations larger."""
    ways = [
        eight(tensor=8, recompute=way)
        for way in (Recompute.NONE, Recompute.SELECTIVE, Recompute.OPERATIONS, Recompute.FULL)
    ]
    steps = [way.step_seconds for way in ways]
    held = [way.memory[0].activations for way in ways]
    assert steps == sorted(steps)
    assert held == sorted(held, reverse=True)


def test_sharding_divides_what_it_says() -> None:
    """ZeRO 1, 2 and 3 divide the optimizer, gradients and parameters by the replicas."""
    whole, one, two, three = (eight(data=8, sharding=level).memory[0] for level in Sharding)
    assert one.optimizer == pytest.approx(whole.optimizer / 8)
    assert one.gradients == whole.gradients
    assert two.gradients == pytest.approx(whole.gradients / 8)
    assert two.parameters == whole.parameters
    states = three.parameters + three.gradients + three.optimizer
    assert states == pytest.approx(8_030_261_248 * 16 / 8)


def test_sequence_parallelism_shares_what_is_whole() -> None:
    """Activations shrink, and computation as well."""
    plain, shared = (eight(tensor=8, sequence_parallel=share) for share in (False, True))
    assert shared.memory[0].activations < plain.memory[0].activations
    assert shared.parts.compute < plain.parts.compute


def test_longer_sequences_fit_with_context_parallelism() -> None:
    """With c devices a sequence's activations are c times smaller."""
    one = eight(tensor=2, data=4, sequence_length=32768, batch_size=8)
    four = eight(tensor=2, context=4, sequence_length=32768, batch_size=8)
    assert four.memory[0].activations == pytest.approx(one.memory[0].activations / 4)


def test_experts_are_spread() -> None:
    """Expert parallelism divides the parameters of experts, and brings its exchanges."""
    cluster = parse_cluster("8xH100-80GB")
    one, eight_ways = (
        estimate(
            published("mixtral-8x7b"),
            cluster,
            configuration(data=8, expert=expert, recompute=Recompute.FULL),
        )
        for expert in (1, 8)
    )
    assert eight_ways.memory[0].parameters < 0.2 * one.memory[0].parameters
    assert eight_ways.parts.expert_parallel > one.parts.expert_parallel == 0


def test_lower_precision_is_faster() -> None:
    """Products in fp8 take less time than in bf16, and those less than in fp32."""
    steps = [
        eight(data=8, microbatch_size=4, batch_size=32, precision=PRECISIONS[name]).step_seconds
        for name in ("fp8", "bf16", "fp32")
    ]
    assert steps == sorted(steps)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor": 8, "data": 2}, "are 16 devices; the cluster '8xH100-80GB' has 8"),
        ({"data": 8, "expert": 8}, "has no experts"),
        ({"data": 8, "batch_size": 12}, "a batch of 12 does not split.*16 would do"),
        ({"data": 8, "virtual_stages": 2}, "take the schedule interleaved"),
        ({"data": 8, "schedule": "pipedream"}, "no schedule 'pipedream'"),
        ({"data": 2, "context": 4, "sequence_length": 2050}, "context-parallel degree 4 must"),
        ({"data": 4, "tensor": 2, "expert": 3}, "expert-parallel degree is 3; it must divide"),
        ({"data": 0}, "data-parallel degree is 0"),
    ],
)
def test_configurations_that_do_not_fit_are_told_why(
    changes: dict[str, object], message: str
) -> None:
    """Degrees, batches and schedules that cannot be are refused in a sentence."""
    with pytest.raises(InputError, match=message):
        eight(**changes)


def test_heads_must_split() -> None:
    """A tensor-parallel degree that does not divide the heads is refused."""
    with pytest.raises(InputError, match="must divide the 28 heads"):
        estimate(
            published("qwen2-7b"),
            parse_cluster("8xH100-80GB"),
            configuration(tensor=8),
        )


def test_devices_may_stay_idle() -> None:
    """Degrees that take half of a cluster are priced as on a cluster of half the size."""
    changes = {"tensor": 4, "pipeline": 2}
    model = published("llama-3-8b")
    half, whole = (
        estimate(model, parse_cluster(cluster), configuration(**changes))
        for cluster in ("8xH100-80GB", "2x8xH100-80GB")
    )
    assert half.step_seconds == whole.step_seconds
    assert half.mfu == whole.mfu
    assert whole.devices == 8
