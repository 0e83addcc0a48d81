"""What a rank holds of its stages: weights, alone or as one of several shards and replicas."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from diaulos.training.groups import Groups
from diaulos.training.job import TrainingJob
from diaulos.training.replicas import StageReplicas, owners
from diaulos.training.stage import PlacedLayer, StageModule
from diaulos.training.weights import WeightVersions


@dataclass(frozen=True, kw_only=True)
class HeldStage:
    """What a rank holds of one of its stages."""

    weights: WeightVersions
    replicas: StageReplicas
    """Who else holds it, and who updates what of it."""

    @cached_property
    def spoken_for(self) -> frozenset[str]:
        """The weights whose gradients this rank adds to sums over stages, and no other rank.

        Each replica speaks for its own, and the first shard for those that all shards have whole.
        """
        names, parts = self.weights.names, self.weights.parts
        is_first_shard = self.replicas.groups.is_first_shard
        own = (names[place] for place in self.replicas.own)
        return frozenset(n for n in own if is_first_shard or parts[n].dim is not None)


def hold_stage(
    job: TrainingJob, placed: Sequence[PlacedLayer], stage: int, groups: Groups
) -> HeldStage:
    """What this rank has of a stage before the first update; all shards of a replica call it."""
    mesh = groups.sharded.mesh if groups.sharded else None
    module = StageModule(placed, job.seed, mesh, job.precision.computing).to(groups.device)
    replicas = _replicas(job, stage, module, groups)
    weights = WeightVersions(
        module,
        job.first_schedule.weight_versions[stage],
        job.make_optimizer,
        precision=job.precision,
        updated=replicas.updated,
        extrapolated=job.mitigation.extrapolated_weights,
    )
    return HeldStage(weights=weights, replicas=replicas)


def _replicas(job: TrainingJob, stage: int, module: StageModule, groups: Groups) -> StageReplicas:
    return StageReplicas(
        groups=groups,
        owners=stage_owners(job, stage, module),
        sharded=job.plan.stages[stage].sharded_optimizer,
    )


def stage_owners(job: TrainingJob, stage: int, module: StageModule) -> tuple[int, ...]:
    """The replica that speaks for each weight of a stage, and updates it with a sharded optimizer.

    Without sharding the first one speaks for all.
    """
    named = list(module.named_weights())
    tied = {*job.model.ties, *job.model.ties.values()}
    return owners(
        [weight.numel() for _, weight in named],
        [place for place, (name, _) in enumerate(named) if name in tied],
        job.plan.stages[stage].data_parallel if job.plan.stages[stage].sharded_optimizer else 1,
    )
