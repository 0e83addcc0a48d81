"""Ranks killed at random moments and in the middle of checkpoints: what is left is whole."""

import os
import random
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from diaulos.pricing.processes import LocalRank, RankError, join_group, run_ranks
from diaulos.training import checkpoints
from diaulos.training.checkpoints import Checkpoint, latest_checkpoint
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import read_steps
from diaulos.training.saving import CheckpointSettings
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_bit_equal, run_jobs
from tests.training.toy import CONFIG, toy_job

EVERY = 2
"""Batches between checkpoints."""
JOB = toy_job(
    "2bw", (1, 1), 2, batches=100_000, clip_norm=0.1, config=replace(CONFIG, dropout=0.1, tied=True)
)


def _kill(*_arguments: object, **_named: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_in_the_middle(write: Callable[..., None], path: Path, tensors: object) -> None:
    write(path, tensors)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    _kill()


def _after(
    calls: int, do: Callable[..., object], then: Callable[..., object]
) -> Callable[..., object]:
    """Something that is done so many times, and then something else."""
    left = iter(range(calls))

    def either(*given: object, **named: object) -> object:
        now = do if next(left, None) is not None else then
        return now(*given, **named)

    return either


def _spoil_file(calls: int) -> None:
    write = checkpoints.write_tensors
    checkpoints.write_tensors = _after(calls, write, partial(_kill_in_the_middle, write))


def _spoil_description(calls: int) -> None:
    checkpoints.write_json = _after(calls, checkpoints.write_json, _kill)


def _spoil_naming(calls: int) -> None:
    Path.rename = _after(calls, Path.rename, _kill)


def _spoil_removal(calls: int) -> None:
    shutil.rmtree = _after(calls, shutil.rmtree, _kill)


def _later(seconds: float) -> None:
    threading.Timer(seconds, _kill).start()


def _killed(rank: LocalRank, folder: Path, prepare: Callable[[], None], victims: set[int]) -> None:
    groups = make_groups(JOB.shape, join_group(rank), torch.device("cpu"))
    if rank.rank in victims:
        prepare()
    train_rank(
        JOB,
        groups,
        folder=folder,
        checkpoints=CheckpointSettings(folder=folder / "checkpoints", every_batches=EVERY),
        resume_from=latest_checkpoint(folder / "checkpoints"),
    )


def _kill_once(folder: Path, prepare: Callable[[], None], victims: set[int]) -> None:
    """Go on, be killed, and check that no more is lost than what followed the last checkpoint.

    A checkpoint is written while the next batches are computed, and done before the next one is.
    """
    before = _updates(latest_checkpoint(folder / "checkpoints"))
    with pytest.raises(RankError, match="SIGKILL"):
        run_ranks(_killed, folder, prepare, victims, ranks=2)
    found = latest_checkpoint(folder / "checkpoints")
    done = max((len(steps) for steps in read_steps(folder)), default=0) if found else 0
    assert _updates(found) >= max(before, done - 2 * EVERY)
    for layer in found.description.layers if found else ():
        assert found.tensors(layer).keys() == found.header(layer).keys()


def _updates(checkpoint: Checkpoint | None) -> int:
    return checkpoint.description.updates if checkpoint else 0


def _assert_never_broken(folder: Path) -> None:
    """What goes on from the newest checkpoint is to the bit the run that was never killed."""
    found = latest_checkpoint(folder / "checkpoints")
    assert found is not None
    job: TrainingJob = replace(JOB, batches=found.description.batches + 2)
    [outcomes] = run_jobs([Leg(job=job, resume_from=found.path)], ranks=2)
    run = train_serially(job)
    for outcome in outcomes:
        assert_bit_equal(outcome, run)


def test_kills_in_the_middle_of_checkpoints_leave_the_one_before(tmp_path):
    """In a file, before the description, before the name is given, while an old one is removed."""
    for spoil in (_spoil_file, _spoil_description, _spoil_naming, _spoil_removal):
        _kill_once(tmp_path, partial(spoil, 3), {0, 1})
    assert _updates(latest_checkpoint(tmp_path / "checkpoints")) > 0
    _assert_never_broken(tmp_path)


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_at_random_moments_lose_what_followed_the_last_checkpoint(kills, tmp_path):
    """And nothing else: the run ends with the weights of the one that was never killed."""
    drawn = random.Random(kills)
    for _ in range(kills):
        _kill_once(tmp_path, partial(_later, drawn.uniform(0.1, 1.0)), {drawn.randrange(2)})
    _assert_never_broken(tmp_path)
