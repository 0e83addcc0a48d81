"""When a rank writes checkpoints, and what of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
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
    state_key,
    weight_key,
    write_layers,
)
from diaulos.training.groups import Groups
from diaulos.training.job import TrainingJob
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
    shards hold; whoever is done last completes the checkpoint. Without settings nothing is written.
    """

    def __init__(
        self,
        job: TrainingJob,
        groups: Groups,
        weights: Mapping[int, WeightVersions],
        settings: CheckpointSettings | None,
    ) -> None:
        self._job = job
        self._groups = groups
        self._weights = weights
        self._settings = settings
        self._worker = Worker("checkpoints")
        self._pending: Future[None] | None = None

    def after_update(self, updates: int) -> None:
        """Begin to write where it is time to, with copies of what is now."""
        if self._pending is not None and self._pending.done():
            self.finish()
        settings, job = self._settings, self._job
        if settings is None or not self._groups.is_first_replica:
            return
        every = settings.every_batches * job.updates // job.batches
        if updates % every == 0 or updates == job.updates:
            self.finish()
            group = self._groups.sharded.computing if self._groups.sharded else None
            layers = copies(self._weights.values(), job.model, group)
            if self._groups.is_first_shard:
                described = describe(job, updates)
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
        write_layers(settings.folder, description.updates, layers)
        done = self._groups.store.add(f"diaulos/checkpoint/{description.updates}", 1)
        if done == self._groups.shape.depth:
            complete(settings.folder, description, kept=settings.kept)


def describe(job: TrainingJob, updates: int) -> Description:
    """What a checkpoint of a job is of, after so many updates."""
    return Description(
        updates=updates,
        batches=updates * job.batches // job.updates,
        samples_per_batch=job.microbatch_size * job.plan.microbatches,
        seed=job.seed,
        schedule=job.schedule,
        optimizer=_optimizer_name(job),
        layers=tuple(spec.name for spec in job.model.layers),
    )


def copies(
    stages: Iterable[WeightVersions],
    model: LayeredModel,
    shards: dist.ProcessGroup | None = None,
) -> dict[str, dict[str, Tensor]]:
    """Copies of all that a checkpoint needs of these stages, by layer.

    Of tied parameters it is the owner that is saved. The shards of a replica call it together.
    """
    layers: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for weights in stages:
        for key, name, tensor in _owned(weights, model):
            spec, own_name = model.split(name)
            part, shape = weights.parts[name], weights.shapes[name]
            # Such as the number of steps: not split where the parameter is.
            whole = part.gather(tensor, shape, shards) if tensor.ndim else tensor
            layers[spec.name][key(own_name)] = whole.clone() if whole is tensor else whole
    return dict(layers)


def _owned(
    weights: WeightVersions, model: LayeredModel
) -> Iterator[tuple[Callable[[str], str], str, Tensor]]:
    """The key of each tensor for the layer's name of its parameter, its parameter, and it."""
    for version in weights.alive:
        for name, parameter in weights.named(version):
            if name not in model.ties:
                yield partial(weight_key, version=version), name, parameter.detach()
    for name, state in weights.optimizer_state().items():
        for key, value in state.items():
            if value is not None and name not in model.ties:
                yield partial(state_key, key=key), name, value


def _optimizer_name(job: TrainingJob) -> str:
    return type(job.make_optimizer([nn.Parameter(torch.zeros(1))])).__name__
