"""Training on real ranks equals training in one process, bit for bit.

In float32 on both sides, with one thread each: a stage runs the same operations on the same
numbers as the serial run, gradients are accumulated in the order of the microbatches, the sums
over two replicas do not depend on their order, and the gradient norm sums the same vector in the
same order whatever the stages are.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

from diaulos.models.layers import Reduction
from diaulos.training.evaluation import Evaluation
from diaulos.training.learning_rates import LearningRateSchedule
from diaulos.training.serial import train_serially
from tests.distributed.jobs import assert_bit_equal, run_jobs
from tests.training.toy import CONFIG, MaskedTokens, RandomTokens, toy_job

OPTIMIZERS = {
    "adamw_foreach": partial(torch.optim.AdamW, lr=1e-2, foreach=True),
    "adamw_fused": partial(torch.optim.AdamW, lr=1e-2, fused=True),
    "momentum": partial(torch.optim.SGD, lr=1e-1, momentum=0.9),
}
DEEP = replace(CONFIG, layers=6)
CASES = [
    ("adamw_foreach", None, False),
    ("adamw_foreach", 0.1, True),
    ("adamw_fused", None, True),
    ("adamw_fused", 0.1, False),
    ("momentum", None, False),
    ("momentum", 0.1, True),
]
"""Optimizer, clipping, recomputation: every pair of two of them."""


def _jobs(schedule, replicas, microbatches, cases):
    return [
        toy_job(
            schedule,
            replicas,
            microbatches,
            make_optimizer=OPTIMIZERS[optimizer],
            clip_norm=clip_norm,
            recompute=recompute,
        )
        for optimizer, clip_norm, recompute in cases
    ]


def _check(jobs):
    """Run jobs on the same ranks, and compare each with its serial run."""
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=jobs[0].shape.ranks), strict=True):
        _check_outcomes(job, outcomes, train_serially(job))


def _check_outcomes(job, outcomes, run):
    """Every rank holds what the serial run holds, with no more in flight and alive than stated."""
    schedule = next(job.schedules())
    for rank, outcome in enumerate(outcomes):
        assert_bit_equal(outcome, run)
        position = job.shape.position_of(rank)
        kept = max(schedule.weight_versions[stage] for stage in outcome.stages)
        assert outcome.peak_in_flight <= schedule.in_flight_limits[position]
        assert outcome.versions_alive <= kept
        assert outcome.storages <= kept


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("depth", [2, 4])
def test_2bw_equals_the_delayed_replay(depth, width):
    """2BW equals W(t+1) = W(t) - step(grad f(W(t-1))), with d-1, d and d+1 microbatches."""
    jobs = []
    for index, microbatches in enumerate((depth - 1, depth, depth + 1)):
        jobs += _jobs("2bw", (width,) * depth, microbatches, CASES[index::3])
    _check(jobs)


@pytest.mark.parametrize(("replicas", "microbatches"), [((1, 1), 1), ((2, 2), 3), ((1,) * 4, 4)])
def test_flushed_schedules_equal_the_undelayed_run(replicas, microbatches):
    """GPipe and 1F1B equal plain training of the same batches."""
    _check(
        _jobs("gpipe", replicas, microbatches, CASES[::2])
        + _jobs("1f1b", replicas, microbatches, CASES[1::2])
    )


@pytest.mark.parametrize("replicas", [(2, 1), (1, 2), (1, 2, 1)])
def test_stages_of_unequal_width_equal_the_serial_run(replicas):
    """Microbatch j on replica j mod d of each stage changes no number."""
    jobs = []
    for index, schedule in enumerate(("gpipe", "1f1b", "zb-h1", "2bw")):
        jobs += _jobs(schedule, replicas, 2, CASES[index % 3 :: 3])
    _check(jobs)


def test_2bw_differs_from_training_without_delay():
    """The delay is real: from the second update on, the weights are others than without it."""
    delayed = train_serially(toy_job("2bw", (1, 1), 2))
    plain = train_serially(toy_job("1f1b", (1, 1), 2))
    name = next(iter(plain.versions[0]))

    assert torch.equal(plain.versions[1][name], delayed.versions[1][name])
    assert not torch.equal(plain.versions[2][name], delayed.versions[2][name])


def test_a_flush_in_between_changes_no_number():
    """Draining 2BW every two batches gives the run that never drains."""
    job = replace(toy_job("2bw", (1, 1), 2), batches_between_flushes=2)
    run = train_serially(job)
    for outcome in run_jobs([job], ranks=2)[0]:
        assert_bit_equal(outcome, run)


OTHER_SCHEDULES = {
    "interleaved": 2,
    "breadth-first": 2,
    "pipedream": 1,
    "pipedream-vertical": 1,
    "zb-h1": 1,
    "zb-h2": 1,
    "zb-v": 2,
    "dualpipe-v": 2,
}
"""With the stages that each rank holds."""


def _other_jobs(depth, width):
    """Every schedule on a pipeline of this depth, with m = d and, on its own, fewer and more."""
    for number, (schedule, chunks) in enumerate(OTHER_SCHEDULES.items()):
        alone = schedule.startswith("pipedream")
        job = toy_job(
            schedule,
            (width,) * depth * chunks,
            (1, depth, 2 * depth + 1)[number % 3],
            batches=3,
            make_optimizer=OPTIMIZERS["momentum"],
            clip_norm=None if alone else 0.1,
            recompute=number % 2 == 1,
            config=replace(DEEP, dropout=0.1, tied=not alone),
            chunks=chunks,
        )
        yield replace(
            job,
            learning_rate=LearningRateSchedule(warm_up_updates=2, cosine_updates=6),
            evaluation=Evaluation(data=RandomTokens(), microbatches=2 * width, every_batches=2),
        )


@pytest.mark.parametrize(("depth", "width"), [(2, 1), (2, 2), (4, 1)])
def test_every_other_schedule_equals_the_serial_run(depth, width):
    """Several stages a rank, backwards in halves and stashed weights change no number.

    Dropout, recomputation, tied embeddings and masked targets do not either, evaluations leave no
    trace and are of the newest weights, and learning rates go by the number of the update.
    """
    jobs = list(_other_jobs(depth, width))
    masked = toy_job("2bw", (width,) * depth, depth, clip_norm=0.1)
    model = replace(masked.model, reduction=Reduction.MASKED_MEAN)
    jobs.append(replace(masked, model=model, data=MaskedTokens()))
    _check(jobs)
