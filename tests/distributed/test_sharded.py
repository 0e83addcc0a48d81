"""Tensor-parallel stages on real ranks equal training in one process, in float64 to 1e-12.

Sums over shards have another order than one process's, so equality is not to the bit.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

from diaulos.models.layers import Reduction
from diaulos.training.evaluation import Evaluation
from diaulos.training.precision import Precision
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_close, run_jobs
from tests.training.toy import CONFIG, MaskedTokens, RandomTokens, toy_job

TOLERANCE = 1e-12
WIDE = replace(CONFIG, width=24, heads=6, dropout=0.1)
SCHEDULES = ("gpipe", "1f1b", "interleaved", "2bw", "pipedream", "zb-h1", "zb-v")
TWO_CHUNKS = ("interleaved", "zb-v")
OF_EQUAL_WIDTH = (*TWO_CHUNKS, "pipedream")
DEGREES = {
    2: [((1,), (2,))],
    4: [((2, 1), (1, 2)), ((1, 2), (2, 1)), ((1, 1), (2, 2)), ((2,), (2,)), ((1, 1), (1, 3))],
    5: [((1, 1, 1), (2, 1, 2)), ((1, 3), (2, 1))],
}
"""Replicas and shards of each position, by the ranks that they take."""


def _job(schedule, replicas, shards, microbatches=2, **changes):
    alone = schedule == "pipedream"
    chunks = 2 if schedule in TWO_CHUNKS else 1
    pipeline = [degrees + _again(schedule, degrees) for degrees in (replicas, shards)]
    settings = {
        "batches": 5,
        "chunks": chunks,
        "clip_norm": None if alone else 0.1,
        "config": replace(WIDE, tied=not alone),
        "make_optimizer": partial(torch.optim.SGD, lr=1e-1, momentum=0.9),
    }
    job = toy_job(
        schedule,
        pipeline[0],
        microbatches,
        shards=pipeline[1],
        precision=Precision.FLOAT64,
        **{**settings, **changes},
    )
    evaluation = Evaluation(data=RandomTokens(), microbatches=2 * max(replicas), every_batches=2)
    return replace(job, evaluation=evaluation)


def _again(schedule, degrees):
    """The degrees of the second stage of each rank, where the schedule has two."""
    return {"interleaved": degrees, "zb-v": degrees[::-1]}.get(schedule, ())


def _check(jobs, ranks):
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=ranks), strict=True):
        run = train_serially(job)
        for outcome in outcomes:
            assert_close(outcome, run, tolerance=TOLERANCE)


def _cases(ranks):
    """Schedules with degrees: of four ranks every second pair, of the others every one."""
    step = 2 if ranks == 4 else 1
    for number, (replicas, shards) in enumerate(DEGREES[ranks]):
        for schedule in SCHEDULES[number % step :: step]:
            equal = len(set(replicas)) == 1
            fits = 2 * len(replicas) <= WIDE.layers + 2
            if (equal or schedule not in OF_EQUAL_WIDTH) and (fits or schedule not in TWO_CHUNKS):
                yield schedule, replicas, shards


def _jobs(ranks):
    for number, (schedule, replicas, shards) in enumerate(_cases(ranks)):
        fewest = len(replicas) if schedule == "2bw" else 1
        job = _job(
            schedule,
            replicas,
            shards,
            max(1 + number % 3, fewest),
            recompute=number % 2 == 1,
            sequence_parallel=number // 2 % 2 == 1 and 3 not in shards,
        )
        if number % 3 == 1 and schedule != "pipedream":
            job = replace(job, model=replace(job.model, reduction=Reduction.SUM))
        if number % 3 == 2:
            model = replace(job.model, reduction=Reduction.MASKED_MEAN)
            job = replace(job, model=model, data=MaskedTokens())
        yield job


@pytest.mark.parametrize("ranks", DEGREES)
def test_every_schedule_equals_the_serial_run(ranks):
    """Gradients, weights, optimizer states, losses and evaluations are those of one process.

    With unequal replicas and shards, several stages a rank, backwards in halves, dropout,
    recomputation, sequence parallelism, clipping, tied embeddings and masked targets.
    """
    _check(list(_jobs(ranks)), ranks)


def test_a_run_goes_on_with_other_shards(tmp_path):
    """Checkpoints hold whole tensors: 2BW goes on split otherwise, or not at all, and back."""
    config = replace(WIDE, tied=True)
    straight = _job("2bw", (1, 1), (1, 2), config=config)
    job = replace(straight, evaluation=None)
    middle, last = (tmp_path / name for name in ("middle", "last"))
    split = Leg(job=replace(job, batches=2), checkpoints=middle)
    (written,) = run_jobs([split], ranks=3)
    whole = replace(_job("2bw", (1, 1), (1, 1), config=config), evaluation=None)
    resumed = Leg(
        job=replace(whole, batches=4),
        resume_from=middle / "update_00000002",
        checkpoints=last,
    )
    run_jobs([resumed], ranks=2)
    other = replace(_job("2bw", (1, 1), (2, 1), config=config), evaluation=None)
    (outcomes,) = run_jobs([Leg(job=other, resume_from=last / "update_00000004")], ranks=3)

    run = train_serially(job)
    assert written[-1].losses == pytest.approx(run.losses[:2], abs=TOLERANCE)
    for outcome in outcomes:
        assert_close(outcome, run, tolerance=TOLERANCE)
