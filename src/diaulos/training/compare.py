"""A job on real ranks beside the same job in one process, gradient by gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.serial import train_serially
from diaulos.training.sharding import Part

Gradients = dict[tuple[int, str], tuple[Part, Tensor]]
"""By batch and parameter name, of the part of the parameter that a rank holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientDifference:
    """The entry of any gradient of any batch that differs most from a one-process run."""

    largest: float
    batch: int
    parameter: str
    batches: int
    parameters: int

    def __str__(self) -> str:
        compared = f"{self.parameters} parameters in {self.batches} batches"
        place = "" if self.largest == 0 else f", in {self.parameter} of batch {self.batch}"
        return f"{self.largest:g} over {compared}{place}"


def compare_gradients(job: TrainingJob, *, timeout_seconds: float = 300.0) -> GradientDifference:
    """Run a job on local ranks and in this process, one thread each, and compare all gradients."""
    ranks = job.grid.ranks
    by_rank = run_ranks(_gradients, job, ranks=ranks, timeout_seconds=timeout_seconds)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        serial = train_serially(job).gradients
    finally:
        torch.set_num_threads(threads)
    differences = {
        (_largest(gradient - part.cut(serial[batch][name])), batch, name)
        for gradients in by_rank
        for (batch, name), (part, gradient) in gradients.items()
    }
    largest, batch, parameter = max(differences)
    return GradientDifference(
        largest=largest,
        batch=batch,
        parameter=parameter,
        batches=job.batches,
        parameters=len(serial[0]),
    )


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0


def _gradients(rank: LocalRank, job: TrainingJob) -> Gradients:
    seen: dict[tuple[int, str], Tensor] = {}

    def observe(batch: int, names: Sequence[str], summed: Sequence[Tensor]) -> None:
        seen.update({(batch, name): g.clone() for name, g in zip(names, summed, strict=True)})

    store = join_group(rank)
    trained = train_rank(
        job,
        make_groups(job.shape, store, torch.device("cpu"), shards=job.grid.shards),
        observe_gradients=observe,
    )
    parts = {name: part for held in trained.weights.values() for name, part in held.parts.items()}
    return {(batch, name): (parts[name], gradient) for (batch, name), gradient in seen.items()}
