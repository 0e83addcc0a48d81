"""A run that goes on from a checkpoint is the run that was never broken."""

from dataclasses import replace

import torch

from diaulos.training.checkpoints import read_checkpoint
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_bit_equal, run_jobs
from tests.training.toy import CONFIG, toy_job

BATCHES = 4


def _job(schedule, replicas, **changes):
    alone = schedule == "pipedream"
    return toy_job(
        schedule,
        replicas,
        4 // max(replicas),
        clip_norm=None if alone else 0.1,
        batches=BATCHES,
        config=replace(CONFIG, dropout=0.1, tied=not alone),
        **changes,
    )


def _checkpoint(folder, updates):
    return folder / f"update_{updates:08d}"


def test_2bw_goes_on_from_any_update_in_any_split(tmp_path):
    """Straight = so many + the rest, at each offset of the two banks, with any stages and widths.

    Other depths and schedules give the unbroken run to the bit, and other widths that of one
    process which goes on with them.
    """
    job = _job("2bw", (1, 1))
    legs = [Leg(job=job, checkpoints=tmp_path)]
    legs += [
        Leg(job=job, resume_from=_checkpoint(tmp_path, updates)) for updates in range(1, BATCHES)
    ]
    straight, *resumed = run_jobs(legs, ranks=2)
    run = train_serially(job)
    for outcome in (*straight, *(outcome for outcomes in resumed for outcome in outcomes)):
        assert_bit_equal(outcome, run)

    deep = Leg(job=_job("2bw", (1,) * 4), resume_from=_checkpoint(tmp_path, 1))
    wide = Leg(job=_job("2bw", (2, 2)), resume_from=_checkpoint(tmp_path, 2))
    flushed = Leg(job=_job("zb-h1", (1,) * 4), resume_from=_checkpoint(tmp_path, 3))
    deep_outcomes, *others = run_jobs([deep, wide, flushed], ranks=4)
    for outcome in deep_outcomes:
        assert_bit_equal(outcome, run)
    for leg, outcomes in zip((wide, flushed), others, strict=True):
        again = train_serially(leg.job, resume_from=read_checkpoint(leg.resume_from))
        for outcome in outcomes:
            assert_bit_equal(outcome, again)


def test_every_other_schedule_goes_on(tmp_path):
    """Straight = so many + the rest, for flushed schedules, several stages a rank, stashed weights.

    In one process, too.
    """
    jobs = [
        _job(schedule, (1, 1) * chunks, chunks=chunks)
        for schedule, chunks in (("1f1b", 1), ("interleaved", 2), ("zb-v", 2))
    ]
    jobs.append(_job("pipedream", (1, 1)))
    legs = []
    for index, job in enumerate(jobs):
        folder = tmp_path / str(index)
        legs.append(Leg(job=job, checkpoints=folder))
        done = 2 * job.updates // job.batches
        legs.append(Leg(job=job, resume_from=_checkpoint(folder, done)))
    outcomes = run_jobs(legs, ranks=2)
    for leg, by_rank in zip(legs, outcomes, strict=True):
        run = train_serially(leg.job)
        for outcome in by_rank:
            assert_bit_equal(outcome, run)
        if leg.resume_from is not None:
            alone = train_serially(leg.job, resume_from=read_checkpoint(leg.resume_from))
            assert run.losses[-len(alone.losses) :] == alone.losses
            for name, weight in alone.versions[leg.job.updates].items():
                assert torch.equal(run.versions[leg.job.updates][name], weight)
