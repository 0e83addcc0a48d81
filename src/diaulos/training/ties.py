"""Parameters that are one, such as an embedding and the head's projection, on different stages.

Each stage has a copy of its own with an optimizer's state of its own. They start equal, and see the
same gradient, the sum of all their gradients: so they stay equal to the bit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from diaulos.training.groups import Groups
from diaulos.training.holdings import HeldStage
from diaulos.training.job import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class _TiedSet:
    names: tuple[str, ...]
    """The owner first."""
    group: dist.ProcessGroup | None
    """The ranks that hold any of them; None where they are all on one position."""


class TiedGradients:
    """Sums the gradients of tied parameters. Every rank makes one, as it makes groups."""

    def __init__(self, groups: Groups, job: TrainingJob, held: Iterable[HeldStage]) -> None:
        self._speaks = groups.is_first_replica and groups.is_first_shard
        self._beside = groups.sharded.beside if groups.sharded else None
        self._weights = {name: own.weights for own in held for name in own.weights.names}
        self._sets = []
        ties = job.model.ties
        for owner in dict.fromkeys(ties.values()):
            names = (owner, *(tied for tied, kept in ties.items() if kept == owner))
            stages = {job.stage_of_layer[job.model.split(name)[0].name] for name in names}
            self._sets.append(_TiedSet(names=names, group=groups.of_stages(stages)))

    def sum(self, gradients: Mapping[str, Tensor]) -> None:
        """Replace the gradients of tied parameters, out of this rank's, by their sums.

        They have been summed over replicas before: the first shard of the first replica of each
        stage speaks for it. They are put together of the parts of all shards, since the stages
        may split them differently.
        """
        for tied in self._sets:
            own = [name for name in tied.names if name in gradients]
            if not own:
                continue
            total = self._whole(own[0], gradients[own[0]]).clone()
            for name in own[1:]:
                total += self._whole(name, gradients[name])
            if tied.group is not None:
                if not self._speaks:
                    total.zero_()
                dist.all_reduce(total, group=tied.group)
            for name in own:
                gradients[name].copy_(self._weights[name].parts[name].cut(total))

    def _whole(self, name: str, gradient: Tensor) -> Tensor:
        weights = self._weights[name]
        return weights.parts[name].gather(gradient, weights.shapes[name], self._beside)
