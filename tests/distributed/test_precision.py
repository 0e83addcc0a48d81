"""Training in low precision equals the serial run in the same precision, bit for bit."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from diaulos.models.layers import LayerSpec
from diaulos.pricing.processes import RankError
from diaulos.training.evaluation import Evaluation
from diaulos.training.learning_rates import LearningRateSchedule
from diaulos.training.loss_scale import LossScaling
from diaulos.training.precision import Precision
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_bit_equal, run_jobs
from tests.training.toy import CONFIG, RandomTokens, graph_of, plan_of, toy_job


def _job(schedule, replicas, precision, **changes):
    alone = schedule == "pipedream"
    settings = {
        "clip_norm": None if alone else 0.1,
        "config": replace(CONFIG, dropout=0.1, tied=not alone),
    }
    job = toy_job(schedule, replicas, 2, precision=precision, **{**settings, **changes})
    return replace(
        job,
        learning_rate=LearningRateSchedule(warm_up_updates=6),
        evaluation=Evaluation(data=RandomTokens(), microbatches=2, every_batches=2),
    )


def _check(jobs, ranks):
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=ranks), strict=True):
        run = train_serially(job)
        for outcome in outcomes:
            assert_bit_equal(outcome, run)


def test_low_precision_equals_the_serial_run():
    """Weights are rounded from masters, and gradients summed in full, by every kind of schedule."""
    bf16, fp16 = Precision.BF16, Precision.FP16
    jobs = [
        _job("2bw", (1, 1), bf16, recompute=True),
        _job("pipedream", (1, 1), bf16),
        _job("zb-v", (1,) * 4, bf16, chunks=2),
        _job("1f1b", (1, 1), fp16, make_optimizer=partial(torch.optim.AdamW, lr=1e-2, fused=True)),
        _job("zb-h1", (1, 1), fp16, recompute=True),
        _job("2bw", (1, 1), fp16),
    ]
    _check(jobs, ranks=2)
    _check([_job("2bw", (2, 1), bf16), _job("gpipe", (1, 2), fp16)], ranks=3)


class _Overflow(torch.autograd.Function):
    """Passes a tensor on, and gives the weight beside it a gradient that may be infinite."""

    @staticmethod
    def forward(ctx, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight, hidden.abs().amax() > 100)
        return hidden.clamp(-1, 1)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:
        weight, overflows = ctx.saved_tensors
        return gradient, torch.ones_like(weight).masked_fill(overflows, float("inf"))


class _Odd(nn.Module):
    """Overflows where its input is large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, hidden: Tensor) -> Tensor:
        return _Overflow.apply(hidden, self.weight)


class _Large(nn.Module):
    """Token 0 is large."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(256, CONFIG.width)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens)
        return hidden.masked_fill((tokens == 0)[..., None], 200.0)


@dataclass(frozen=True)
class _ZeroIn(RandomTokens):
    """Token 0 stands in one microbatch of one batch alone."""

    batch: int = 0

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = RandomTokens.__call__(self, batch, microbatch)
        inputs = inputs.clamp(min=1)
        inputs[0, 0] = 0 if (batch, microbatch) == (self.batch, 1) else 1
        return inputs, targets


def _overflowing_job(schedule, batch):
    """Three stages, of which the middle one overflows in a batch."""
    job = _job(schedule, (1, 1, 1), Precision.FP16, batches=7)
    _, first, second, head = job.model.layers
    large, odd = LayerSpec(name="large", build=_Large), LayerSpec(name="odd", build=_Odd)
    model = replace(job.model, layers=(large, first, odd, second, head), ties={})
    plan = plan_of(5, (1, 1, 1), 3)
    assert plan.stages[1].layers == (2,)
    return replace(
        job,
        model=model,
        graph=graph_of(model),
        plan=plan,
        data=_ZeroIn(batch=batch),
        evaluation=None,
        loss_scaling=LossScaling(initial=1024.0, growth_updates=2),
    )


SCALES = {
    "1f1b": [1024, 1024, 2048, 1024, 1024, 2048, 2048],
    "2bw": [1024, 1024, 1024, 2048, 1024, 1024, 2048],
}
"""Of batches of which the third overflows: two updates without one double the scale. Under 2BW
batch t is computed before it is known whether batch t-1 overflowed."""


@pytest.mark.parametrize("schedule", SCALES)
def test_an_overflow_on_one_stage_skips_the_update_on_all(schedule, tmp_path):
    """The scale is halved everywhere, at the same batch, and the run goes on; so when resumed."""
    job = _overflowing_job(schedule, batch=2)
    run = train_serially(job)
    legs = [Leg(job=job, checkpoints=tmp_path)]
    legs += [Leg(job=job, resume_from=tmp_path / f"update_{done:08d}") for done in (3, 4)]
    straight, *resumed = run_jobs(legs, ranks=3)
    for outcome in straight:
        assert outcome.skipped == [2]
        assert outcome.scales == SCALES[schedule]
        assert_bit_equal(outcome, run)
    for outcome in (outcome for outcomes in resumed for outcome in outcomes):
        assert outcome.scales == SCALES[schedule][-len(outcome.scales) :]
        assert_bit_equal(outcome, run)


def test_what_overflows_without_a_scale_stops_the_run():
    """A scale of 1 is not halved: the parameter is named, as without a scale."""
    job = _overflowing_job("2bw", batch=1)
    job = replace(job, loss_scaling=LossScaling(initial=1.0))
    with pytest.raises(RankError, match=r"the gradient is not finite in 1 parameters: odd\.weight"):
        run_jobs([job], ranks=3)


def test_low_precision_is_trained_with_shards():
    """Sharded stages in bf16 come as near to one process as bf16 lets them."""
    job = _job("zb-h1", (1, 1), Precision.BF16, shards=(2, 1), sequence_parallel=True)
    run = train_serially(job)
    (outcomes,) = run_jobs([job], ranks=3)
    for outcome in outcomes:
        assert outcome.losses == pytest.approx(run.losses, rel=1e-2)
        assert all(master.dtype is torch.float32 for master in outcome.masters.values())
