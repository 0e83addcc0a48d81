"""Running jobs on real ranks, and what each rank brings home to be compared."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.groups import Groups, make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.weights import WeightVersions


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one rank holds after a job."""

    stages: tuple[int, ...]
    losses: list[float]
    gradients: dict[tuple[int, str], Tensor]
    """Summed and not clipped, by batch and parameter name."""
    versions: dict[int, dict[str, Tensor]]
    """The weights of this rank's stages that are alive, by version."""
    optimizer_state: dict[str, dict[str, Tensor]]
    peak_in_flight: int
    versions_alive: int
    storages: int
    """The most distinct storages that hold the first parameter of one of the stages."""


def run_jobs(jobs: Sequence[TrainingJob], ranks: int) -> list[list[Outcome]]:
    """The outcomes of each job, by rank; jobs of the same replicas, one after another."""
    by_rank = run_ranks(_run_all, list(jobs), ranks=ranks, timeout_seconds=100)
    return [list(outcomes) for outcomes in zip(*by_rank, strict=True)]


def _run_all(rank: LocalRank, jobs: list[TrainingJob]) -> list[Outcome]:
    store = join_group(rank)
    groups = make_groups(jobs[0].shape, store, torch.device("cpu"))
    return [
        _run(job, replace(groups, shape=job.shape, store=dist.PrefixStore(str(i), store)))
        for i, job in enumerate(jobs)
    ]


def _run(job: TrainingJob, groups: Groups) -> Outcome:
    gradients: dict[tuple[int, str], Tensor] = {}

    def observe(batch: int, names: Sequence[str], summed: Sequence[Tensor]) -> None:
        gradients.update({(batch, name): g.clone() for name, g in zip(names, summed, strict=True)})

    trained = train_rank(job, groups, observe_gradients=observe)
    held = trained.weights.values()
    alive: defaultdict[int, dict[str, Tensor]] = defaultdict(dict)
    for weights in held:
        for version in weights.alive:
            alive[version].update(_tensors(weights.named(version)))
    return Outcome(
        stages=trained.groups.stages,
        losses=[step.loss for step in trained.steps],
        gradients=gradients,
        versions=dict(alive),
        optimizer_state={k: v for weights in held for k, v in weights.optimizer_state().items()},
        peak_in_flight=trained.peak_in_flight,
        versions_alive=max(weights.peak_alive for weights in held),
        storages=max(_storages(weights) for weights in held),
    )


def _storages(weights: WeightVersions) -> int:
    return len({next(weights.named(version))[1].data_ptr() for version in weights.alive})


def _tensors(named: object) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in named}


def assert_bit_equal(outcome: Outcome, run: object) -> None:
    """A rank's outcome is that of the serial run: gradients, weights, losses, optimizer state."""
    assert run.losses == outcome.losses
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
