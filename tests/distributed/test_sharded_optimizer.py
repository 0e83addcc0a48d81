"""ZeRO-1: each replica keeps the optimizer's state of its share, and the numbers are the same."""

from dataclasses import replace
from functools import partial

import torch

from diaulos.training.checkpoints import read_checkpoint
from diaulos.training.precision import Precision
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_bit_equal, assert_close, run_jobs
from tests.training.toy import CONFIG, toy_job


def _job(schedule, replicas, **changes):
    alone = schedule == "pipedream"
    settings = {
        "clip_norm": None if alone else 0.1,
        "config": replace(CONFIG, tied=not alone),
        "sharded_optimizer": True,
    }
    return toy_job(schedule, replicas, 2, **{**settings, **changes})


def test_a_sharded_optimizer_changes_no_number():
    """Each weight's state is on one replica alone, and all weights are those of the serial run."""
    fused = partial(torch.optim.AdamW, lr=1e-2, fused=True)
    jobs = [
        _job("1f1b", (2, 2), make_optimizer=fused),
        _job("2bw", (2, 2)),
        _job("pipedream", (2, 2)),
        _job("interleaved", (2,) * 4, chunks=2, make_optimizer=fused),
        _job("2bw", (2, 2), precision=Precision.FP16),
    ]
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=4), strict=True):
        run = train_serially(job)
        for outcome in outcomes:
            assert_bit_equal(outcome, run)
        kept = [name for outcome in outcomes for name in outcome.optimizer_state]
        assert sorted(kept) == sorted(run.optimizer_state)
        assert min(len(outcome.optimizer_state) for outcome in outcomes) > 0
        assert {name for outcome in outcomes for _, name in outcome.gradients} == set(kept)


def test_more_replicas_than_weights():
    """A replica with nothing to update takes all from the others."""
    job = _job("1f1b", (3, 1, 1), config=replace(CONFIG, layers=1), batches=2)
    (outcomes,) = run_jobs([job], ranks=5)
    run = train_serially(job)
    assert not outcomes[2].optimizer_state
    for outcome in outcomes:
        assert_close(outcome, run, tolerance=1e-5)


def test_shares_of_split_stages():
    """Each shard's replicas share its part of the weights, in float64 to 1e-12."""
    job = _job(
        "2bw",
        (2,),
        shards=(2,),
        precision=Precision.FLOAT64,
        make_optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    )
    (outcomes,) = run_jobs([job], ranks=4)
    run = train_serially(job)
    for outcome in outcomes:
        assert_close(outcome, run, tolerance=1e-12)


def test_checkpoints_hold_all_shares(tmp_path):
    """A run goes on with another split of the optimizer, or without."""
    job = _job("2bw", (2, 2), precision=Precision.BF16)
    run = train_serially(job)
    run_jobs([Leg(job=job, checkpoints=tmp_path)], ranks=4)
    middle = tmp_path / "update_00000002"
    whole = replace(job, plan=replace(job.plan, stages=tuple(map(_unsharded, job.plan.stages))))
    alone = train_serially(job, resume_from=read_checkpoint(middle))
    for outcomes in run_jobs([Leg(job=j, resume_from=middle) for j in (job, whole)], ranks=4):
        for outcome in outcomes:
            assert_bit_equal(outcome, run)
    assert alone.losses == run.losses[2:]


def _unsharded(stage):
    return replace(stage, sharded_optimizer=False)
