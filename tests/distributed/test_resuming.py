"""A run that goes on from a checkpoint is the run that was never broken."""

from dataclasses import replace

import pytest
import torch

from diaulos.schedules.generators import GENERATORS
from diaulos.training.checkpoints import read_checkpoint
from diaulos.training.precision import Precision
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_bit_equal, assert_close, run_jobs
from tests.training.toy import CONFIG, toy_job

BATCHES = 4
SEVERAL_STAGES = [name for name, generator in GENERATORS.items() if generator.chunks != 1]
ONE_STAGE = [name for name in GENERATORS if name not in SEVERAL_STAGES]
SPLITS = {
    "deep": {"replicas": (1, 1, 1, 1)},
    "wide": {"replicas": (4,)},
    "square": {"replicas": (2, 2)},
    "uneven": {"replicas": (1, 2, 1)},
    "split": {"replicas": (1, 1), "shards": (2, 2)},
    "split and wide": {"replicas": (2,), "shards": (2,)},
}
"""Of four ranks: depth, width and tensor-parallel degree."""


def _job(schedule, replicas, **changes):
    alone = schedule.startswith("pipedream")
    return toy_job(
        schedule,
        replicas,
        4 // max(replicas),
        clip_norm=None if alone else 0.1,
        **{"batches": BATCHES, **changes},
        config=replace(CONFIG, dropout=0.1, tied=not alone),
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


@pytest.mark.parametrize("schedules", [ONE_STAGE, SEVERAL_STAGES])
def test_every_schedule_goes_on(schedules, tmp_path):
    """Straight 12 = 5 + 7, for flushed schedules, several stages a rank, stashed weights.

    In one process, too.
    """
    chunks = 1 if schedules is ONE_STAGE else 2
    legs = []
    for schedule in schedules:
        job = _job(schedule, (1, 1) * chunks, chunks=chunks, batches=12)
        folder = tmp_path / schedule
        legs.append(Leg(job=job, checkpoints=folder))
        done = 5 * job.updates // job.batches
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


@pytest.mark.parametrize(
    ("before", "after"), list(zip(SPLITS, [*list(SPLITS)[1:], "deep"], strict=True))
)
def test_any_split_goes_on_with_any_other(before, after, tmp_path):
    """Straight = so many + the rest where depth, width and tensor-parallel degree change."""
    jobs = [
        toy_job("2bw", microbatches=12 // max(s["replicas"]), precision=Precision.FLOAT64, **s)
        for s in (SPLITS[before], SPLITS[after])
    ]
    run_jobs([Leg(job=jobs[0], checkpoints=tmp_path)], ranks=4)
    leg = Leg(job=jobs[1], resume_from=_checkpoint(tmp_path, 3))
    [outcomes] = run_jobs([leg], ranks=4)
    run = train_serially(jobs[1])
    for outcome in outcomes:
        assert_close(outcome, run, tolerance=1e-12)
