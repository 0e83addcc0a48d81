"""What every rank says when one of them goes wrong: one clear error with the culprit's name."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.models.gpt import GPTConfig, summed_cross_entropy
from diaulos.pricing.processes import LocalRank, RankError, join_group, run_ranks
from diaulos.training.failures import RunError
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import StepRecord
from tests.training.toy import CONFIG, toy_job

RANKS = 4
CULPRIT = 2


def _raise() -> None:
    raise OSError("the disk is on fire")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _leave() -> None:
    os._exit(0)


def _sleep() -> None:
    time.sleep(20)


@dataclass(frozen=True)
class _Fault:
    """Happens on one rank after its first update."""

    happen: Callable[[], None]
    rank: int

    def __call__(self, record: StepRecord) -> None:
        if record.batch == 0 and self.rank == CULPRIT:
            self.happen()


def _run(
    rank: LocalRank, job: TrainingJob, happen: Callable[[], None], folder: Path, patience: float
) -> str:
    store = join_group(rank)
    groups = make_groups(job.shape, store, torch.device("cpu"), timeout_seconds=patience)
    message = "it ended well"
    try:
        train_rank(job, groups, observe_step=_Fault(happen, rank.rank))
    except RunError as error:
        message = str(error)
    (folder / f"{rank.rank}.txt").write_text(message)
    time.sleep(0.1)  # the others read from this process's connections until it ends
    if message != "it ended well":
        os._exit(1)  # as `diaulos train` does
    return message


def _messages(job, happen, folder, *, patience=30.0) -> dict[int, str]:
    """What each rank said, by rank; those that were killed say nothing."""
    with pytest.raises(RankError):
        run_ranks(_run, job, happen, folder, patience, ranks=RANKS, grace_seconds=10)
    return {
        rank: (folder / f"{rank}.txt").read_text()
        for rank in range(RANKS)
        if (folder / f"{rank}.txt").exists()
    }


@pytest.mark.parametrize("schedule", ["1f1b", "2bw"])
@pytest.mark.parametrize(
    ("happen", "reason"),
    [
        (_raise, "the disk is on fire"),
        (_kill, "no longer answers: it was killed, or is stopped"),
        (_leave, "no longer answers: it was killed, or is stopped"),
    ],
)
def test_a_rank_that_dies_stops_all_with_its_name(schedule, happen, reason, tmp_path):
    """An exception, a kill and an early exit each end every other rank, which names the culprit."""
    messages = _messages(toy_job(schedule, (1,) * RANKS, RANKS), happen, tmp_path)

    assert set(messages) >= set(range(RANKS)) - {CULPRIT}
    for message in messages.values():
        assert f"rank {CULPRIT} (stage {CULPRIT})" in message.splitlines()[0]
        assert reason in message


def test_a_rank_that_is_stuck_is_named_after_the_timeout(tmp_path):
    """A rank that lives but does nothing is named by the one that waits for it, with the action."""
    messages = _messages(toy_job("1f1b", (1,) * RANKS, RANKS), _sleep, tmp_path, patience=3.0)

    assert set(messages) == set(range(RANKS)) - {CULPRIT}
    for message in messages.values():
        assert f"rank {CULPRIT} (stage {CULPRIT}) did not do its part of" in message


def _mismatched(rank: LocalRank, configs: list[GPTConfig]) -> str:
    store = join_group(rank)
    job = toy_job("1f1b", (1, 1, 1), 3, config=configs[rank.rank])
    try:
        train_rank(job, make_groups(job.shape, store, torch.device("cpu")))
    except RunError as error:
        return str(error)
    return "it ended well"


def test_a_shape_mismatch_is_one_error_on_every_rank():
    """Stages of different widths are refused before anything is sent, by both stages' names."""
    configs = [CONFIG, replace(CONFIG, width=32), replace(CONFIG, width=32)]
    messages = run_ranks(_mismatched, configs, ranks=3)

    assert len(set(messages)) == 1
    assert messages[0].startswith(
        "rank 0 (stage 0) sends float32[2, 8, 16] and rank 1 (stage 1) expects float32[2, 8, 32]"
    )


@dataclass(frozen=True)
class _LossThatOverflows:
    """Infinite from its third use on."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return summed_cross_entropy(outputs, targets) * float("inf")


def _not_finite(rank: LocalRank, job: TrainingJob) -> str:
    groups = make_groups(job.shape, join_group(rank), torch.device("cpu"))
    try:
        train_rank(job, groups)
    except RunError as error:
        return str(error)
    return "it ended well"


@pytest.mark.parametrize("schedule", ["gpipe", "2bw"])
def test_a_gradient_that_is_not_finite_stops_every_rank(schedule):
    """No rank updates, and all say which parameters were not finite."""
    job = toy_job(schedule, (1, 1), 2)
    job = replace(job, model=replace(job.model, loss=_LossThatOverflows()))
    for message in run_ranks(_not_finite, job, ranks=2):
        assert "UPDATE0: the gradient is not finite" in message
        assert "embedding.tokens.weight" in message


def _wrong_world(rank: LocalRank) -> str:
    job, store = toy_job("1f1b", (1, 1, 1), 3), join_group(rank)
    dist.barrier()  # both are connected before one of them leaves
    with pytest.raises(ValueError, match="2 ranks were started; the plan has 3") as raised:
        make_groups(job.shape, store, torch.device("cpu"))
    return str(raised.value)


def test_a_wrong_number_of_ranks_is_refused():
    """A plan for three ranks on two says how many to start."""
    assert "start 3 ranks" in run_ranks(_wrong_world, ranks=2)[0]
