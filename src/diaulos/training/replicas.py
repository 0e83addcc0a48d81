"""The replicas of a stage: how gradients are summed over them, and who updates which weights.

All replicas update all weights, alike; or, where the plan shards the optimizer (ZeRO-1), each
weight has one replica that keeps its optimizer's state and updates it. Gradients are then summed
at that replica alone and the new weights are sent from it, which moves as many bytes as one sum
over all. Weights are given away whole, so that the optimizer sees the tensors that it would see
without sharding and the result is the same to the bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.training.groups import Groups


def owners(elements: Sequence[int], together: Sequence[int], replicas: int) -> tuple[int, ...]:
    """The replica that updates each weight: the largest first, to whom has least so far.

    The weights at the places `together` all go to the first replica: tied ones, which are summed
    there.
    """
    load = [0] * replicas
    owner = [0] * len(elements)
    load[0] = sum(elements[place] for place in together)
    others = sorted(set(range(len(elements))) - set(together), key=lambda place: -elements[place])
    for place in others:
        owner[place] = min(range(replicas), key=lambda replica: load[replica])
        load[owner[place]] += elements[place]
    return tuple(owner)


@dataclass(frozen=True, kw_only=True)
class StageReplicas:
    """One replica's view of a stage's weights, in their order."""

    groups: Groups
    owners: tuple[int, ...]
    """The replica that speaks for each weight, and updates it where the optimizer is sharded."""
    sharded: bool

    @property
    def replica(self) -> int:
        """Which replica this is."""
        return self.groups.shape.replica_of(self.groups.row)

    @property
    def own(self) -> list[int]:
        """The weights that this replica speaks for, by place."""
        return [place for place, owner in enumerate(self.owners) if owner == self.replica]

    @property
    def updated(self) -> list[int]:
        """The weights that it updates, by place."""
        return self.own if self.sharded else list(range(len(self.owners)))

    def sum(self, gradients: Sequence[Tensor]) -> None:
        """Replace gradients by their sums over the replicas, at least those that it updates."""
        group = self.groups.replicas
        if group is None:
            return
        if not self.sharded:
            _in_one_message(gradients, partial(dist.all_reduce, group=group))
            return
        for replica, rank in enumerate(self.groups.same_shards):
            reduce = partial(dist.reduce, dst=rank, group=group)
            _in_one_message(self._of(replica, gradients), reduce)

    def share(self, weights: Sequence[Tensor]) -> None:
        """Give the others the weights that it has updated, and take theirs."""
        group = self.groups.replicas_beside
        if group is None or not self.sharded:
            return
        for replica, rank in enumerate(self.groups.same_shards):
            broadcast = partial(dist.broadcast, src=rank, group=group)
            with torch.no_grad():
                _in_one_message(self._of(replica, weights), broadcast)

    def _of(self, replica: int, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [t for t, owner in zip(tensors, self.owners, strict=True) if owner == replica]


def _in_one_message(tensors: Sequence[Tensor], operation: Callable[[Tensor], object]) -> None:
    """Do a collective in place on all tensors together, one message for each type of element."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        chosen = [tensor for tensor in tensors if tensor.dtype is dtype]
        flat = torch.cat([tensor.flatten() for tensor in chosen])
        operation(flat)
        for tensor, done in zip(
            chosen, torch.split(flat, [t.numel() for t in chosen]), strict=True
        ):
            tensor.copy_(done.view_as(tensor))
