"""Running jobs on real ranks, and what each rank brings home to be compared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.groups import Groups, make_groups
from diaulos.training.job import TrainingJob, train_rank


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one rank holds after a job."""

    stage: int
    losses: list[float]
    gradients: dict[tuple[int, str], Tensor]
    """Summed and not clipped, by batch and parameter name."""
    newest: dict[str, Tensor]
    previous: dict[str, Tensor]
    """Empty where the schedule keeps one version."""
    optimizer_state: dict[str, dict[str, Tensor]]
    peak_in_flight: int
    versions_alive: int
    storages: int
    """Distinct storages that hold the stage's first parameter, counted over all its banks."""


def run_jobs(jobs: Sequence[TrainingJob], ranks: int) -> list[list[Outcome]]:
    """The outcomes of each job, by rank; jobs of one shape, run one after another."""
    by_rank = run_ranks(_run_all, list(jobs), ranks=ranks, timeout_seconds=100)
    return [list(outcomes) for outcomes in zip(*by_rank, strict=True)]


def _run_all(rank: LocalRank, jobs: list[TrainingJob]) -> list[Outcome]:
    store = join_group(rank)
    groups = make_groups(jobs[0].shape, store, torch.device("cpu"))
    return [
        _run(job, replace(groups, store=dist.PrefixStore(str(i), store)))
        for i, job in enumerate(jobs)
    ]


def _run(job: TrainingJob, groups: Groups) -> Outcome:
    gradients: dict[tuple[int, str], Tensor] = {}

    def observe(batch: int, names: Sequence[str], summed: Sequence[Tensor]) -> None:
        gradients.update({(batch, name): g.clone() for name, g in zip(names, summed, strict=True)})

    trained = train_rank(job, groups, observe_gradients=observe)
    weights = trained.weights
    alive = range(max(weights.newest - weights.kept + 1, 0), weights.newest + 1)
    return Outcome(
        stage=trained.groups.stage,
        losses=[step.loss for step in trained.steps],
        gradients=gradients,
        newest=_tensors(weights.named(weights.newest)),
        previous=_tensors(weights.named(weights.newest - 1)) if weights.kept > 1 else {},
        optimizer_state=weights.optimizer_state(),
        peak_in_flight=trained.peak_in_flight,
        versions_alive=weights.peak_alive,
        storages=len({next(weights.named(v))[1].data_ptr() for v in alive}),
    )


def _tensors(named: object) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in named}


def assert_bit_equal(outcome: Outcome, run: object) -> None:
    """A rank's outcome is that of the serial run: gradients, weights, losses, optimizer state."""
    assert run.losses == outcome.losses
    for (batch, name), gradient in outcome.gradients.items():
        assert torch.equal(run.gradients[batch][name], gradient), (batch, name)
    for version, weights in ((-1, outcome.newest), (-2, outcome.previous)):
        for name, weight in weights.items():
            assert torch.equal(run.versions[version][name], weight), (version, name)
    for name, state in outcome.optimizer_state.items():
        assert run.optimizer_state[name].keys() == state.keys()
        for key, value in state.items():
            expected = run.optimizer_state[name][key]
            assert torch.equal(expected, value) if value is not None else expected is None
