"""A run without processes, data and numbers: what would be refused, and what each rank holds.

Every stage runs once on the meta device, as the shard that a rank has of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import Parameter

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.models.layers import Stream
from diaulos.planning.evaluation.evaluate import fits
from diaulos.planning.evaluation.places import stage_places
from diaulos.pricing.memory_probe import kept_bytes
from diaulos.schedules.actions import Kind
from diaulos.schedules.schedule import Schedule
from diaulos.training.fake_shards import fake_mesh
from diaulos.training.holdings import stage_owners
from diaulos.training.job import TrainingJob
from diaulos.training.links import EdgeForm, StageForms
from diaulos.training.rank import stage_forms
from diaulos.training.sharding import own_parameter
from diaulos.training.stage import StageModule, place_layers

_SCHEDULES = 4
"""So many stretches of batches are checked: the later ones of a run are like these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAccount:
    """What the ranks of one position of the pipeline would hold and do, each of them."""

    ranks: tuple[int, ...]
    stages: tuple[int, ...]
    layers: tuple[str, ...]
    parameters: int
    """Of this rank's parts."""
    bytes_by_kind: Mapping[str, float]
    """Without what operations need for a moment, and the buffers of messages."""
    in_flight: int
    """The most microbatches between forward and backward at a time."""
    limit_bytes: float
    actions_per_batch: Mapping[Kind, float]

    @property
    def total_bytes(self) -> float:
        """Of all kinds."""
        return sum(self.bytes_by_kind.values())

    @property
    def fits(self) -> bool:
        """Whether it is within the memory of the cluster's device."""
        return fits(self.total_bytes, self.limit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a run would be."""

    edges: tuple[EdgeForm, ...]
    """What passes from each stage to the next, for each microbatch."""
    accounts: tuple[RankAccount, ...]
    """By position along the pipeline."""
    checked_batches: int
    """Whose schedules hold what they promise."""


def dry_run(job: TrainingJob, cluster: Cluster) -> DryRun:
    """What a job would be on the cluster that its plan is for.

    Raises `InputError` where a layer cannot take what comes to it, or two stages expect different
    things of what passes between them, and `CheckError` where a schedule breaks a promise.
    """
    schedules = list(islice(job.schedules(), _SCHEDULES))
    placed = place_layers(job.model, job.graph, job.plan)
    forms = [stage_forms(job, placed, stage) for stage in range(job.shape.stages)]
    for stage, (before, behind) in enumerate(pairwise(forms)):
        if before.output != behind.input:
            raise InputError(
                f"stage {stage} gives {before.output}", f"stage {stage + 1} takes {behind.input}"
            )
    accounts = tuple(
        _account(job, position, forms, schedules, _limit(job, position, cluster))
        for position in range(job.shape.depth)
    )
    return DryRun(
        edges=tuple(form.output for form in forms[:-1]),
        accounts=accounts,
        checked_batches=sum(schedule.batches for schedule in schedules),
    )


def _limit(job: TrainingJob, position: int, cluster: Cluster) -> float:
    if len(cluster.groups) == 1:
        return cluster.groups[0].memory_bytes
    return stage_places(job.plan, cluster)[position].group.memory_bytes


def _account(
    job: TrainingJob,
    position: int,
    forms: Sequence[StageForms],
    schedules: Sequence[Schedule],
    limit_bytes: float,
) -> RankAccount:
    shape, grid = job.shape, job.grid
    ranks = grid.ranks_of(position)
    row = grid.row_of(ranks[0])
    stages = shape.stages_of(row)
    in_flight = max(schedule.in_flight_limits[position] for schedule in schedules)
    kinds: defaultdict[str, float] = defaultdict(float)
    layers: list[str] = []
    parameters, kept = 0, []
    for stage in stages:
        with fake_mesh(grid.shards[position]) as mesh:
            module = _module(job, stage, mesh)
            for kind, size in _held(job, stage, module).items():
                kinds[kind] += size
            kept.append(_activation_bytes(job, stage, module, forms[stage]))
            parameters += sum(own_parameter(own).numel() for own in module.parameters())
        layers += module.names
    kinds["activations"] += in_flight * max(kept)  # of chunks the largest, which may be all
    return RankAccount(
        ranks=ranks,
        stages=stages,
        layers=tuple(layers),
        parameters=parameters,
        bytes_by_kind=dict(kinds),
        in_flight=in_flight,
        limit_bytes=limit_bytes,
        actions_per_batch=_actions(schedules, row),
    )


def _actions(schedules: Sequence[Schedule], row: int) -> dict[Kind, float]:
    counts = Counter(action.kind for schedule in schedules for action in schedule.actions[row])
    batches = sum(schedule.batches for schedule in schedules)
    return {kind: counts[kind] / batches for kind in Kind if counts[kind]}


def _module(job: TrainingJob, stage: int, mesh: DeviceMesh | None) -> StageModule:
    placed = place_layers(job.model, job.graph, job.plan)[stage]
    return StageModule(placed, job.seed, mesh, job.precision.computing, on_meta=True)


def _held(job: TrainingJob, stage: int, module: StageModule) -> dict[str, float]:
    """Bytes by kind that a rank holds of a stage, whatever is in flight.

    Every version of the weights has gradients of its own, which wait for their update while those
    of the next batch are summed.
    """
    named = [(name, own_parameter(weight)) for name, weight in module.named_weights()]
    weights = sum(weight.nbytes for _, weight in named)
    frozen = sum(own_parameter(weight).nbytes for weight in module.frozen())
    versions = job.first_schedule.weight_versions[stage]
    updating = job.precision.updating.itemsize
    masters, state = max(_updated_bytes(job, stage, module, named))
    return {
        "weights": weights + frozen,
        "versions": (versions - 1) * weights,
        "masters": masters,
        "gradients": versions * updating * sum(weight.numel() for _, weight in named),
        "optimizer": state,
    }


def _updated_bytes(
    job: TrainingJob, stage: int, module: StageModule, named: Sequence[tuple[str, Tensor]]
) -> Iterator[tuple[float, float]]:
    """The masters and the optimizer's state that each replica keeps."""
    owners = stage_owners(job, stage, module)
    has_masters = job.precision.has_masters or job.mitigation.extrapolated_weights
    for replica in range(max(owners, default=0) + 1):
        own = [pair for pair, owner in zip(named, owners, strict=True) if owner == replica]
        elements = sum(weight.numel() for _, weight in own)
        size = job.precision.updating.itemsize
        yield size * elements if has_masters else 0.0, size * _state_elements(job, own)


def _state_elements(job: TrainingJob, named: Sequence[tuple[str, Tensor]]) -> float:
    """The numbers that the optimizer keeps, from a step on small ones of the same kind."""
    if not named:
        return 0.0
    small = [(name, Parameter(torch.ones((2,) * weight.ndim))) for name, weight in named]
    optimizer = job.make_optimizer(small)
    for _, parameter in small:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return sum(
        weight.numel() / parameter.numel() * sum(_elements(optimizer.state[parameter].values()))
        for (_, weight), (_, parameter) in zip(named, small, strict=True)
    )


def _elements(state: Sequence[object]) -> Iterator[int]:
    for value in state:
        if isinstance(value, Tensor) and value.ndim:
            yield value.numel()


def _activation_bytes(
    job: TrainingJob, stage: int, module: StageModule, forms: StageForms
) -> float:
    """What a microbatch keeps between its forward and its backward, its input included."""
    entering = tuple(form.empty(torch.device("meta")) for form in forms.input.tensors)
    for place in forms.input.differentiated:
        entering[place].requires_grad_()
    is_last = stage == job.shape.stages - 1
    kept = kept_bytes(
        partial(_forward, job, module, entering, None if is_last else forms.output),
        uncounted=(*entering, *module.parameters(), *module.buffers()),
    )
    return kept + sum(tensor.nbytes for tensor in entering)


def _forward(
    job: TrainingJob, module: StageModule, entering: Stream, leaving: EdgeForm | None
) -> Stream:
    """What leaves a stage, which is to have this form; on the last one the loss."""
    output: Stream = module(entering, 0)
    if leaving is None:
        _, targets = job.model.example(job.microbatch_size)
        return (job.model.loss(*map(job.precision.updated, output), targets.to("meta")),)
    if EdgeForm.of(output) != leaving:
        raise InputError(
            f"the stage of {', '.join(module.names)} gives {EdgeForm.of(output)}",
            f"its next stage takes {leaving}",
        )
    return output
