"""What ranks tell each other once per batch: gradients over replicas, norms over stages."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.training.groups import Groups


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShare:
    """What one rank has at hand after its last backward of a batch."""

    gradients: list[Tensor]
    loss: float
    """The part of the batch's mean loss that this rank has computed."""
    busy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSums:
    """The same on every rank, but for the gradients, which are those of the rank's stage."""

    gradients: list[Tensor]
    squared_norms: Tensor
    """Of each parameter of the whole model, in the order of its layers."""
    loss: float
    busy_seconds: float
    """Of all ranks together."""

    @property
    def gradient_norm(self) -> float:
        """The norm of the gradient of the whole model."""
        return float(self.squared_norms.sum().sqrt())


class BatchReducer:
    """Sums batch after batch on a thread of its own, beside the computations of the next batch.

    Every sum has a fixed order whatever the stages are: the squared norm of a parameter is
    computed by the first replica of its stage and added to zeros from all other ranks, and two
    replicas' gradients are added in either order with the same result.
    """

    def __init__(self, groups: Groups, first_parameter: int, parameters: int) -> None:
        self._groups = groups
        self._first_parameter = first_parameter
        self._parameters = parameters
        self._tasks: SimpleQueue[tuple[BatchShare, Future[BatchSums]] | None] = SimpleQueue()
        # A daemon: when a run fails, this thread may wait for a peer that is gone.
        self._thread = threading.Thread(target=self._work, name="reduction", daemon=True)
        self._thread.start()

    def start(self, share: BatchShare) -> "Future[BatchSums]":
        """Begin to sum a batch; every rank does so for the same batches in the same order."""
        future: Future[BatchSums] = Future()
        self._tasks.put((share, future))
        return future

    def close(self) -> None:
        """End the thread after what was started."""
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            share, future = task
            try:
                future.set_result(self._sum(share))
            except BaseException as error:  # noqa: BLE001 - raised where the result is wanted
                future.set_exception(error)

    def _sum(self, share: BatchShare) -> BatchSums:
        if self._groups.replicas is not None:
            sum_in_one_message(share.gradients, self._groups.replicas)
        vector = torch.zeros(self._parameters + 2, dtype=torch.float64)
        if self._groups.is_first_replica:
            first = self._first_parameter
            vector[first : first + len(share.gradients)] = squared_norms(share.gradients)
        vector[-2], vector[-1] = share.loss, share.busy_seconds
        vector = vector.to(self._groups.device)
        dist.all_reduce(vector, group=self._groups.world)
        vector = vector.cpu()
        return BatchSums(
            gradients=share.gradients,
            squared_norms=vector[:-2],
            loss=float(vector[-2]),
            busy_seconds=float(vector[-1]),
        )


def squared_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The squared norm of each gradient, in float64."""
    norms = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in gradients]
    return torch.stack(norms).square().cpu()


def clip_coefficient(gradient_norm: float, clip_norm: float | None) -> float | None:
    """By what gradients of this norm are multiplied; None where they stay as they are.

    As `torch.nn.utils.clip_grad_norm_` has it: clip_norm / (norm + 1e-6), at most 1.
    """
    if clip_norm is None:
        return None
    return min(clip_norm / (gradient_norm + 1e-6), 1.0)


def sum_in_one_message(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Replace tensors by their sums over a group, one message for each type of element."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        chosen = [tensor for tensor in tensors if tensor.dtype is dtype]
        flat = torch.cat([tensor.flatten() for tensor in chosen])
        dist.all_reduce(flat, group=group)
        for tensor, summed in zip(
            chosen, torch.split(flat, [t.numel() for t in chosen]), strict=True
        ):
            tensor.copy_(summed.view_as(tensor))
