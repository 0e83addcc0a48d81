"""When a rank writes checkpoints, and what of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from diaulos.errors import CheckError, InputError
from diaulos.models.layers import LayeredModel
from diaulos.training.checkpoints import (
    Description,
    LayerTensors,
    complete,
    master_key,
    remove_torn,
    state_key,
    weight_key,
    write_layers,
)
from diaulos.training.groups import Groups
from diaulos.training.job import TrainingJob
from diaulos.training.loss_scale import LossScale
from diaulos.training.weights import WeightVersions
from diaulos.training.workers import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Where checkpoints are written, how often, and how many are kept."""

    folder: Path
    every_batches: int
    kept: int = 2

    def __post_init__(self) -> None:
        for name in ("every_batches", "kept"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")


class Checkpointing:
    """One rank's part in the checkpoints of a run, written beside its computations.

    The first shard of the first replica of each stage writes its layers, put together of what all
    shards hold, and other replicas what they alone have of the optimizer's state; whoever is done
    last completes the checkpoint. Without settings nothing is written.
    """

    def __init__(
        self,
        job: TrainingJob,
        groups: Groups,
        weights: Mapping[int, WeightVersions],
        loss_scale: LossScale | None,
        settings: CheckpointSettings | None,
    ) -> None:
        self._job = job
        self._groups = groups
        self._weights = weights
        self._loss_scale = loss_scale
        self._settings = settings
        if settings is not None and groups.rank == 0:  # all ranks meet before they begin
            remove_torn(settings.folder)
        self._worker = Worker("checkpoints")
        self._pending: Future[None] | None = None

    def after_update(self, updates: int, *, is_last: bool) -> None:
        """Begin to write where it is time to, with copies of what is now."""
        if self._pending is not None and self._pending.done():
            self.finish()
        settings, job, groups = self._settings, self._job, self._groups
        sharded = [stage for stage in groups.stages if job.plan.stages[stage].sharded_optimizer]
        written = groups.stages if groups.is_first_replica else sharded
        if settings is None or not written:
            return
        every = settings.every_batches * job.updates // job.batches
        if updates % every == 0 or is_last:
            self.finish()
            layers = copies(
                [self._weights[stage] for stage in written],
                job.model,
                groups.sharded.computing if groups.sharded else None,
                with_versions=groups.is_first_replica,
            )
            if groups.is_first_shard:
                described = describe(job, updates, self._loss_scale)
                self._pending = self._worker.submit(
                    lambda: self._write(settings, described, layers)
                )

    def finish(self) -> None:
        """Wait until all is written that was begun; a `CheckError` where it could not be."""
        pending, self._pending = self._pending, None
        if pending is not None:
            try:
                pending.result()
            except OSError as error:
                where = error.filename or (self._settings and self._settings.folder)
                raise CheckError(
                    f"{where}: a checkpoint cannot be written: {error.strerror}; those "
                    "before it are as they were"
                ) from error

    def close(self) -> None:
        """End the thread after what was begun."""
        self._worker.close()

    def _write(
        self, settings: CheckpointSettings, description: Description, layers: LayerTensors
    ) -> None:
        replica = self._groups.shape.replica_of(self._groups.row)
        write_layers(settings.folder, description.updates, layers, replica=replica)
        done = self._groups.store.add(f"diaulos/checkpoint/{description.updates}", 1)
        if done == _writers(self._job):
            complete(settings.folder, description, kept=settings.kept)


def _writers(job: TrainingJob) -> int:
    """How many ranks write a part of a checkpoint."""
    shape = job.shape
    sharded = {
        home
        for stage, home in zip(job.plan.stages, shape.homes, strict=True)
        if stage.sharded_optimizer
    }
    return sum(shape.replicas[home] if home in sharded else 1 for home in range(shape.depth))


def describe(job: TrainingJob, updates: int, loss_scale: LossScale | None = None) -> Description:
    """What a checkpoint of a job is of, after so many updates."""
    return Description(
        updates=updates,
        batches=updates * job.batches // job.updates,
        samples_per_batch=job.microbatch_size * job.plan.microbatches,
        seed=job.seed,
        schedule=job.schedule,
        optimizer=_optimizer_name(job),
        precision=job.precision.value,
        loss_scale=None if loss_scale is None else loss_scale.state,
        layers=tuple(spec.name for spec in job.model.layers),
    )


def copies(
    stages: Iterable[WeightVersions],
    model: LayeredModel,
    shards: dist.ProcessGroup | None = None,
    *,
    with_versions: bool = True,
) -> dict[str, dict[str, Tensor]]:
    """Copies of all that a checkpoint needs of these stages, by layer.

    Of tied parameters it is the owner that is saved. The shards of a replica call it together. All
    replicas have the versions, and of the optimizer each has what it updates.
    """
    layers: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for weights in stages:
        if with_versions:  # layers without weights of their own have a file, too
            layers.update({name: {} for name in weights.module(weights.newest).names})
        kept = chain(_versions(weights) if with_versions else (), _updated(weights))
        for key, name, tensor in kept:
            if name in model.ties:
                continue
            spec, own_name = model.split(name)
            part, shape = weights.parts[name], weights.shapes[name]
            # Such as the number of steps: not split where the parameter is.
            whole = part.gather(tensor, shape, shards) if tensor.ndim else tensor
            layers[spec.name][key(own_name)] = whole.clone() if whole is tensor else whole
    return dict(layers)


_Kept = tuple[Callable[[str], str], str, Tensor]
"""The key of a tensor for the layer's name of its parameter, the parameter, and the tensor."""


def _versions(weights: WeightVersions) -> Iterator[_Kept]:
    for version in weights.alive:
        for name, parameter in weights.named(version):
            yield partial(weight_key, version=version), name, parameter.detach()


def _updated(weights: WeightVersions) -> Iterator[_Kept]:
    for name, master in weights.masters().items():
        yield master_key, name, master
    for name, state in weights.optimizer_state().items():
        for key, value in state.items():
            if value is not None:
                yield partial(state_key, key=key), name, value


def _optimizer_name(job: TrainingJob) -> str:
    return type(job.make_optimizer([("weight", nn.Parameter(torch.zeros(1)))])).__name__
