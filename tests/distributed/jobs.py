"""Running jobs on real ranks, and what each rank brings home to be compared."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.models.layers import LayeredModel
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.checkpoints import read_checkpoint
from diaulos.training.groups import Groups, make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.objective import BatchSource
from diaulos.training.precision import Precision
from diaulos.training.rank import train_rank
from diaulos.training.saving import CheckpointSettings
from diaulos.training.serial import train_serially
from diaulos.training.sharding import Part
from diaulos.training.weights import WeightVersions
from tests.training.toy import graph_of, plan_of


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one rank holds after a job."""

    stages: tuple[int, ...]
    losses: list[float]
    gradients: dict[tuple[int, str], Tensor]
    """Summed and not clipped, by batch and parameter name."""
    parts: dict[str, Part]
    """Which part of each parameter this rank holds."""
    versions: dict[int, dict[str, Tensor]]
    """The weights of this rank's stages that are alive, by version."""
    masters: dict[str, Tensor]
    """The newest weights in full, where they are kept apart."""
    optimizer_state: dict[str, dict[str, Tensor]]
    scales: list[float | None]
    """The loss scale of each step."""
    skipped: list[int]
    """The steps that were skipped."""
    evaluations: dict[int, float]
    """The losses of held-out data, by the batches done before."""
    peak_in_flight: int
    versions_alive: int
    storages: int
    """The most distinct storages that hold the first parameter of one of the stages."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A job that writes a checkpoint after each batch, or goes on from one, or both."""

    job: TrainingJob
    checkpoints: Path | None = None
    resume_from: Path | None = None


def run_jobs(jobs: Sequence[TrainingJob | Leg], ranks: int) -> list[list[Outcome]]:
    """The outcomes of each job, by rank; jobs of the same replicas, one after another."""
    legs = [job if isinstance(job, Leg) else Leg(job=job) for job in jobs]
    by_rank = run_ranks(_run_all, legs, ranks=ranks, timeout_seconds=100)
    return [list(outcomes) for outcomes in zip(*by_rank, strict=True)]


def _run_all(rank: LocalRank, legs: list[Leg]) -> list[Outcome]:
    store = join_group(rank)
    by_degrees = {}
    outcomes = []
    for index, leg in enumerate(legs):
        shape, shards = leg.job.shape, leg.job.grid.shards
        degrees = (shape.replicas, shards)
        if degrees not in by_degrees:
            by_degrees[degrees] = make_groups(shape, store, torch.device("cpu"), shards=shards)
        groups = replace(
            by_degrees[degrees], shape=shape, store=dist.PrefixStore(str(index), store)
        )
        outcomes.append(_run(leg, groups))
    return outcomes


def _run(leg: Leg, groups: Groups) -> Outcome:
    gradients: dict[tuple[int, str], Tensor] = {}

    def observe(batch: int, names: Sequence[str], summed: Sequence[Tensor]) -> None:
        gradients.update({(batch, name): g.clone() for name, g in zip(names, summed, strict=True)})

    folder = leg.checkpoints
    trained = train_rank(
        leg.job,
        groups,
        checkpoints=folder and CheckpointSettings(folder=folder, every_batches=1, kept=99),
        resume_from=leg.resume_from and read_checkpoint(leg.resume_from),
        observe_gradients=observe,
    )
    held = trained.weights.values()
    alive: defaultdict[int, dict[str, Tensor]] = defaultdict(dict)
    for weights in held:
        for version in weights.alive:
            alive[version].update(_tensors(weights.named(version)))
    return Outcome(
        stages=trained.groups.stages,
        losses=[step.loss for step in trained.steps],
        gradients=gradients,
        parts={name: part for weights in held for name, part in weights.parts.items()},
        versions=dict(alive),
        masters={k: v for weights in held for k, v in weights.masters().items()},
        scales=[step.loss_scale for step in trained.steps],
        skipped=[step.batch for step in trained.steps if step.gradient_norm is None],
        optimizer_state={k: v for weights in held for k, v in weights.optimizer_state().items()},
        evaluations={record.batches: record.loss for record in trained.evaluations},
        peak_in_flight=trained.peak_in_flight,
        versions_alive=max(weights.peak_alive for weights in held),
        storages=max(_storages(weights) for weights in held),
    )


def _storages(weights: WeightVersions) -> int:
    firsts = (next(weights.named(version), None) for version in weights.alive)
    return len({first and first[1].data_ptr() for first in firsts})


def _tensors(named: object) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in named}


def assert_bit_equal(outcome: Outcome, run: object) -> None:
    """A rank's outcome is that of the serial run: gradients, weights, losses, optimizer state."""
    for name, master in outcome.masters.items():
        assert torch.equal(run.masters[name], master), name
    assert run.evaluations == outcome.evaluations
    assert run.losses[-len(outcome.losses) :] == outcome.losses
    for (batch, name), gradient in outcome.gradients.items():
        assert torch.equal(run.gradients[batch][name], gradient), (batch, name)
    for version, weights in outcome.versions.items():
        for name, weight in weights.items():
            assert torch.equal(run.versions[version][name], weight), (version, name)
    for name, state in outcome.optimizer_state.items():
        assert run.optimizer_state[name].keys() == state.keys()
        for key, value in state.items():
            expected = run.optimizer_state[name][key]
            assert torch.equal(expected, value) if value is not None else expected is None


def assert_close(outcome: Outcome, run: object, *, tolerance: float) -> None:
    """A rank's parts are those of the serial run, up to the tolerance, absolute."""
    close = partial(torch.testing.assert_close, rtol=0, atol=tolerance)
    assert run.evaluations == pytest.approx(outcome.evaluations, abs=tolerance)
    assert outcome.losses == pytest.approx(run.losses[-len(outcome.losses) :], abs=tolerance)
    for (batch, name), gradient in outcome.gradients.items():
        close(gradient, outcome.parts[name].cut(run.gradients[batch][name]))
    for version, weights in outcome.versions.items():
        for name, weight in weights.items():
            close(weight, outcome.parts[name].cut(run.versions[version][name]))
    for name, state in outcome.optimizer_state.items():
        for key, value in state.items():
            expected = run.optimizer_state[name][key]
            close(value, outcome.parts[name].cut(expected) if expected.ndim else expected)


def float64_job(
    model: LayeredModel, data: BatchSource, schedule: str, replicas: tuple[int, ...], **stages: Any
) -> TrainingJob:
    """A job of three batches of four microbatches, to be compared in float64."""
    return TrainingJob(
        model=model,
        graph=graph_of(model),
        plan=plan_of(len(model.layers), replicas, 4, **stages),
        schedule=schedule,
        data=data,
        microbatch_size=2,
        batches=3,
        make_optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9),
        precision=Precision.FLOAT64,
        clip_norm=1.0,
        chunks=2 if schedule in ("interleaved", "zb-v") else 1,
    )


def check_close(jobs: Sequence[TrainingJob], ranks: int, *, tolerance: float) -> None:
    """Run jobs on the same ranks, and compare each with its serial run."""
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=ranks), strict=True):
        run = train_serially(job)
        for outcome in outcomes:
            assert_close(outcome, run, tolerance=tolerance)
