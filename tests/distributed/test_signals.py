"""SIGTERM, with which a cluster's scheduler ends a job: all is saved, and the run goes on later."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from diaulos.pricing.processes import LocalRank, RankError, join_group, run_ranks
from diaulos.training.checkpoints import latest_checkpoint
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import StepRecord
from diaulos.training.saving import CheckpointSettings
from diaulos.training.serial import train_serially
from diaulos.training.stopping import StoppedError
from tests.distributed.jobs import Leg, assert_bit_equal, run_jobs
from tests.distributed.test_launch import _interrupt, _is_running, _prepare
from tests.training.toy import CONFIG, toy_job

BATCHES = 200
ASKED = 2
"""The step after which one rank gets the signal."""


def _job(schedule: str, chunks: int) -> TrainingJob:
    job = toy_job(
        schedule,
        (1, 1) * chunks,
        3,
        batches=BATCHES,
        chunks=chunks,
        config=replace(CONFIG, tied=not schedule.startswith("pipedream")),
    )
    return replace(job, batches_between_flushes=BATCHES)


def _stopped(rank: LocalRank, job: TrainingJob, folder: Path) -> None:
    groups = make_groups(job.shape, join_group(rank), torch.device("cpu"))

    def ask(record: StepRecord) -> None:
        if rank.rank == 1 and record.batch == ASKED:
            os.kill(os.getpid(), signal.SIGTERM)

    message = "it ended well"
    try:
        train_rank(
            job,
            groups,
            checkpoints=CheckpointSettings(folder=folder, every_batches=1000),
            stops_on_sigterm=True,
            observe_step=ask,
        )
    except StoppedError as stopped:
        message = str(stopped)
    (folder / f"{rank.rank}.txt").write_text(message)
    os._exit(0)  # as `diaulos train` does: messages may be under way that nobody takes


@pytest.mark.parametrize(("schedule", "chunks"), [("2bw", 1), ("interleaved", 2), ("pipedream", 1)])
def test_a_stopped_run_goes_on_to_the_bit(schedule, chunks, tmp_path):
    """One rank is asked, all stop after the same update, and the rest is that of the whole run."""
    job = _job(schedule, chunks)
    with pytest.raises(RankError, match="exit status 0"):
        run_ranks(_stopped, job, tmp_path, ranks=2, grace_seconds=10)
    said = {(tmp_path / f"{rank}.txt").read_text() for rank in range(2)}
    checkpoint = latest_checkpoint(tmp_path)
    assert checkpoint is not None
    updates = checkpoint.description.updates
    assert said == {f"stopped by SIGTERM after update {updates}; go on with --resume"}
    assert ASKED < updates < job.updates

    batches = checkpoint.description.batches + 4
    shorter = replace(job, batches=batches)
    [outcomes] = run_jobs([Leg(job=shorter, resume_from=checkpoint.path)], ranks=2)
    run = train_serially(shorter)
    for outcome in outcomes:
        assert_bit_equal(outcome, run)


def test_sigterm_saves_and_leaves(tmp_path):
    """Status 143, one line, a checkpoint, and no rank is left behind."""
    path = _prepare(tmp_path, batches=1_000_000)
    path.write_text(path.read_text() + "\n[checkpoints]\nevery_batches = 100000\n")
    status, errors, ranks = _interrupt(path, lambda pid, _: os.kill(pid, signal.SIGTERM))

    assert status == 143, errors
    assert errors.count("diaulos: stopped by SIGTERM after update") == 1
    assert "Traceback" not in errors
    assert not any(_is_running(rank) for rank in ranks)
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is not None


def test_a_second_sigterm_ends_at_once(tmp_path):
    """Where saving takes too long for somebody, no process is left."""
    path = _prepare(tmp_path, batches=1_000_000)
    path.write_text(path.read_text() + "\n[checkpoints]\nevery_batches = 100000\n")

    def stop_twice(pid, ranks):
        os.kill(ranks[0], signal.SIGSTOP)  # so that the run cannot agree to stop
        os.kill(pid, signal.SIGTERM)
        time.sleep(4)
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.5)
        os.kill(ranks[0], signal.SIGCONT)

    status, _, ranks = _interrupt(path, stop_twice)
    assert status == 143
    assert not any(_is_running(rank) for rank in ranks)
