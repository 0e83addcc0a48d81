"""What ranks tell each other once per batch: gradients over replicas, norms over stages."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTotals:
    """Of all ranks together; the same on every rank."""

    squared_norms: Tensor
    """Of each parameter of the whole model, in the order of its layers."""
    loss: float
    busy_seconds: float

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
        vector = torch.zeros(len(self._place) + 2, dtype=torch.float64)
        counted = [name for name in gradients if name in self._place and name in spoken_for]
        places = [self._place[name] for name in counted]
        vector[places] = squared_norms([gradients[name] for name in counted])
        vector[-2], vector[-1] = share.loss, share.busy_seconds
        vector = vector.to(self._groups.device)
        dist.all_reduce(vector, group=self._groups.world)
        vector = vector.cpu()
        return BatchTotals(
            squared_norms=vector[:-2], loss=float(vector[-2]), busy_seconds=float(vector[-1])
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
