"""What ranks tell each other once per batch: gradients over replicas, norms over stages."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.training.groups import Groups
from diaulos.training.holdings import HeldStage
from diaulos.training.ties import TiedGradients
from diaulos.training.workers import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The gradients of one stage after its last backward of a batch."""

    gradients: list[Tensor]
    summed: "Future[None]"
    """Done when they are summed over the replicas, in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShare:
    """What one rank has at hand when all its stages have handed over a batch."""

    stages: Mapping[int, HandedOver]
    loss: float
    """The part of the batch's mean loss that this rank has computed."""
    busy_seconds: float
    """Of the time that this rank's step took."""
    step_seconds: float
    memory_bytes: float
    """The most that this rank has held so far."""
    weight_versions: int
    """The most that were alive on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTotals:
    """Of all ranks together; the same on every rank, but for when it was there."""

    squared_norms: Tensor
    """Of each parameter of the whole model, in the order of its layers."""
    loss: float
    busy_seconds: float
    step_seconds: float
    memory_bytes: float
    """The most that any of them has held."""
    weight_versions: int
    """The most that were alive on any of them."""
    there_seconds: float
    """When this rank had it, by `time.perf_counter`."""

    @property
    def bubble_fraction(self) -> float:
        """The share of their steps in which the ranks were not busy.

        Each rank's own step counts: that of the first batch is longer for an earlier stage.
        """
        return 1.0 - self.busy_seconds / self.step_seconds if self.step_seconds else 0.0

    @property
    def gradient_norm(self) -> float:
        """The norm of the gradient of the whole model."""
        return float(self.squared_norms.sum().sqrt())


class BatchReducer:
    """Sums batch after batch on threads of its own, beside the computations of the next batch.

    Every sum has a fixed order whatever the stages are: the squared norm of a parameter is
    computed by the one rank that speaks for it and added to zeros from all other ranks, and two
    replicas' gradients are added in either order with the same result. Of a parameter that is
    split over shards each adds the squared norm of its part.
    """

    def __init__(
        self,
        groups: Groups,
        *,
        parameters: Sequence[str],
        held: Mapping[int, HeldStage],
        ties: TiedGradients,
    ) -> None:
        """Get ready to sum batches.

        `parameters` are those of the whole model in order, of tied ones only their owner; `held`
        is what this rank holds of each of its stages.
        """
        self._groups = groups
        self._ties = ties
        self._held = held
        self._place = {name: index for index, name in enumerate(parameters)}
        # Two: under PipeDream a stage does not wait for what others have still to hand over.
        self._over_replicas = Worker("sums over replicas")
        self._over_stages = Worker("sums over stages")

    def hand_over(self, stage: int, gradients: list[Tensor]) -> HandedOver:
        """Begin to sum the gradients of a stage; its replicas all do so in the same order."""
        replicas = self._held[stage].replicas
        summed = self._over_replicas.submit(lambda: replicas.sum(gradients))
        return HandedOver(gradients=gradients, summed=summed)

    def total(self, share: BatchShare) -> "Future[BatchTotals]":
        """Begin to sum a batch over all ranks, which do so for the same batches in order."""
        return self._over_stages.submit(lambda: self._total(share))

    def close(self) -> None:
        """End the threads after what was started."""
        self._over_replicas.close()
        self._over_stages.close()

    def _total(self, share: BatchShare) -> BatchTotals:
        gradients: dict[str, Tensor] = {}
        spoken_for: set[str] = set()
        for stage, handed_over in share.stages.items():
            handed_over.summed.result()
            held = self._held[stage]
            gradients.update(zip(held.weights.names, handed_over.gradients, strict=True))
            spoken_for |= held.spoken_for
        self._ties.sum(gradients)
        ranks = self._groups.grid.ranks
        vector = torch.zeros(len(self._place) + 3 + 2 * ranks, dtype=torch.float64)
        counted = [name for name in gradients if name in self._place and name in spoken_for]
        places = [self._place[name] for name in counted]
        vector[places] = squared_norms([gradients[name] for name in counted])
        figures = vector[len(self._place) :]
        figures[:3] = torch.tensor(
            [share.loss, share.busy_seconds, share.step_seconds], dtype=torch.float64
        )
        of_ranks = figures[3:].view(2, ranks)  # each rank fills its own place: a sum gathers
        of_ranks[0, self._groups.rank] = share.memory_bytes
        of_ranks[1, self._groups.rank] = share.weight_versions
        vector = vector.to(self._groups.device)
        dist.all_reduce(vector, group=self._groups.world)
        squared_norms_of_all, figures = vector.cpu().tensor_split([len(self._place)])
        return BatchTotals(
            squared_norms=squared_norms_of_all,
            loss=float(figures[0]),
            busy_seconds=float(figures[1]),
            step_seconds=float(figures[2]),
            memory_bytes=float(figures[3:].view(2, ranks)[0].max()),
            weight_versions=int(figures[3:].view(2, ranks)[1].max()),
            there_seconds=time.perf_counter(),
        )


def squared_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The squared norm of each gradient, in float64."""
    if not gradients:
        return torch.zeros(0, dtype=torch.float64)
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    return torch.stack(norms).square().cpu()


def clip_coefficient(gradient_norm: float, clip_norm: float | None) -> float | None:
    """By what gradients of this norm are multiplied; None where they stay as they are.

    As `torch.nn.utils.clip_grad_norm_` has it: clip_norm / (norm + 1e-6), at most 1.
    """
    if clip_norm is None:
        return None
    return min(clip_norm / (gradient_norm + 1e-6), 1.0)
