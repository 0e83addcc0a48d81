"""What every rank says when one of them goes wrong: one clear error with the culprit's name."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from diaulos.models.gpt import Embedding, GPTConfig, summed_cross_entropy
from diaulos.models.layers import LayerSpec
from diaulos.models.tensor_split import TensorSplit
from diaulos.pricing.processes import LocalRank, RankError, join_group, run_ranks
from diaulos.training.failures import RunError
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import StepRecord
from diaulos.training.saving import CheckpointSettings
from tests.training.toy import CONFIG, RandomTokens, graph_of, plan_of, toy_job

RANKS = 4
CULPRIT = 2


def _raise() -> None:
    raise OSError("the disk is on fire")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _leave() -> None:
    os._exit(0)


def _sleep() -> None:
    time.sleep(30)


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
    groups = make_groups(
        job.shape,
        store,
        torch.device("cpu"),
        shards=job.grid.shards,
        timeout_seconds=patience,
    )
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
        run_ranks(_run, job, happen, folder, patience, ranks=RANKS, grace_seconds=6)
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


@pytest.mark.parametrize(
    ("happen", "reason"), [(_raise, "the disk is on fire"), (_kill, "no longer answers")]
)
def test_a_shard_that_dies_stops_all_with_its_name(happen, reason, tmp_path):
    """The other shard, which loses it in the middle of a layer, names it and not itself."""
    job = toy_job("1f1b", (1, 1), 2, shards=(2, 2))
    messages = _messages(job, happen, tmp_path)

    assert set(messages) >= set(range(RANKS)) - {CULPRIT}
    for message in messages.values():
        assert f"rank {CULPRIT} (stage 1, shard 0)" in message.splitlines()[0]
        assert reason in message


def test_a_rank_that_is_stuck_is_named_after_the_timeout(tmp_path):
    """A rank that lives but does nothing is named by all, also by those that wait for others.

    With what each rank was doing.
    """
    messages = _messages(toy_job("1f1b", (1,) * RANKS, RANKS), _sleep, tmp_path, patience=2.0)

    assert set(messages) == set(range(RANKS)) - {CULPRIT}
    for message in messages.values():
        assert f"rank {CULPRIT} (stage {CULPRIT}) did not do its part of" in message
        assert f"rank {CULPRIT} (stage {CULPRIT}) was in {CULPRIT}UPDATE0\n" in message
        assert f"rank {CULPRIT + 1} (stage {CULPRIT + 1}) was in" in message


def test_a_shard_that_is_stuck_is_named_after_the_timeout(tmp_path):
    """And not the other shard, which waits for it in the middle of a layer."""
    job = toy_job("1f1b", (1, 1), 2, shards=(2, 2))
    messages = _messages(job, _sleep, tmp_path, patience=2.0)

    assert set(messages) == set(range(RANKS)) - {CULPRIT}
    for message in messages.values():
        assert f"rank {CULPRIT} (stage 1, shard 0) did not do its part of" in message


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


LARGE = 1e15
"""As an embedding, finite also when squared; its cube is not."""


@dataclass(frozen=True)
class _OneLargeMicrobatch(RandomTokens):
    """Token 0 stands in microbatch 1 of batch 1 alone."""

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = RandomTokens.__call__(self, batch, microbatch)
        inputs = inputs.clamp(min=1)
        inputs[0, 0] = 0 if (batch, microbatch) == (1, 1) else 1
        return inputs, targets


class _LargeToken(Embedding):
    """Token 0 is LARGE."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + LARGE * (tokens == 0)[..., None]


class _Cube(nn.Module):
    """Changes nothing but makes NaN of what is LARGE."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + 0 * hidden**3


class _Root(nn.Module):
    """Changes nothing, and has a derivative that does not exist."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + 0 * (hidden - hidden.detach()).sqrt()


def _infinite_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return summed_cross_entropy(outputs, targets) * float("inf")


def _job_with(
    place: int, layer: type[nn.Module], schedule: str, shards: tuple[int, ...] = (1, 1)
) -> TrainingJob:
    """Two stages, or one of two shards, with one more layer at this place, which is called odd.

    Token 0 is large.
    """
    job = toy_job(schedule, (1, 1), 2)
    _, *rest = job.model.layers
    layers = [LayerSpec(name="embedding", build=partial(_LargeToken, CONFIG)), *rest]
    layers.insert(place, LayerSpec(name="odd", build=layer))
    split = [replace(spec, tensor_split=spec.tensor_split or TensorSplit()) for spec in layers]
    model = replace(job.model, layers=tuple(split))
    plan = plan_of(len(layers), (1,) * len(shards), 2, shards=shards)
    return replace(job, model=model, graph=graph_of(model), plan=plan, data=_OneLargeMicrobatch())


def _not_finite(rank: LocalRank, job: TrainingJob) -> str:
    store = join_group(rank)
    groups = make_groups(job.shape, store, torch.device("cpu"), shards=job.grid.shards)
    try:
        train_rank(job, groups)
    except RunError as error:
        return str(error)
    return "it ended well"


LOSS_JOB = toy_job("gpipe", (1, 1), 2)
NOT_FINITE = {
    "rank 1 (stage 1) failed in 1F3@0: the output of layer odd is not finite for microbatch 1 of "
    "batch 1": _job_with(3, _Cube, "2bw"),
    "rank 1 (stage 1) failed in 1I0@0: the gradient is not finite in layer odd for microbatch 0 of "
    "batch 0": _job_with(3, _Root, "zb-h1"),
    "UPDATE0: the gradient is not finite in 2 parameters: embedding.positions, "
    "embedding.tokens.weight": _job_with(1, _Root, "2bw"),
    ") failed in 0F3@0: the output of layer odd is not finite for microbatch 1 of batch 1": (
        _job_with(3, _Cube, "2bw", shards=(2,))
    ),
    "rank 1 (stage 1) failed in 1F0@0: the loss is not finite for microbatch 0 of batch 0": replace(
        LOSS_JOB, model=replace(LOSS_JOB.model, loss=_infinite_loss)
    ),
}


@pytest.mark.parametrize("message", NOT_FINITE)
def test_a_number_that_is_not_finite_stops_every_rank(message):
    """No rank updates, and all say on which stage, in which layer and for which microbatch."""
    for said in run_ranks(_not_finite, NOT_FINITE[message], ranks=2):
        assert message in said


def _checkpointing(rank: LocalRank, folder: Path) -> str:
    job = toy_job("2bw", (1, 1), 2)
    groups = make_groups(job.shape, join_group(rank), torch.device("cpu"))
    try:
        train_rank(job, groups, checkpoints=CheckpointSettings(folder=folder, every_batches=1))
    except RunError as error:
        return str(error)
    return "it ended well"


def test_a_checkpoint_that_cannot_be_written_stops_every_rank(tmp_path):
    """A folder that cannot be made is named by all ranks, with the reason."""
    (tmp_path / "file").write_text("in the way")
    for message in run_ranks(_checkpointing, tmp_path / "file" / "checkpoints", ranks=2):
        assert "a checkpoint cannot be written: Not a directory" in message
        assert str(tmp_path / "file") in message


def _wrong_world(rank: LocalRank) -> str:
    job, store = toy_job("1f1b", (1, 1, 1), 3), join_group(rank)
    dist.barrier()  # both are connected before one of them leaves
    with pytest.raises(ValueError, match="2 ranks were started; the plan has 3") as raised:
        make_groups(job.shape, store, torch.device("cpu"))
    return str(raised.value)


def test_a_wrong_number_of_ranks_is_refused():
    """A plan for three ranks on two says how many to start."""
    assert "start 3 ranks" in run_ranks(_wrong_world, ranks=2)[0]
