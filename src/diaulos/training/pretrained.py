"""A trained model written in Hugging Face's layout, each stage by one rank that holds it."""

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from diaulos.errors import CheckError, InputError
from diaulos.models.huggingface.recipes import LayerRecipe
from diaulos.models.huggingface.saving import (
    stored_names,
    stored_shapes,
    write_index,
    write_shard,
)
from diaulos.models.huggingface.weights import check_weights
from diaulos.training.groups import Groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import TrainedRank
from diaulos.training.sharding import own_parameter, part_of
from diaulos.training.stage import StageModule

_ASIDE = ".partial"


def check_pretrained(job: TrainingJob) -> None:
    """Refuse files of weights that lack something or have other shapes, naming the stages."""
    weights = next(
        (spec.build.weights for spec in job.model.layers if isinstance(spec.build, LayerRecipe)),
        None,
    )
    if weights is not None:
        stages = {s: _stage_of(job, full) for full, s in stored_names(job.model).items()}
        check_weights(weights, stored_shapes(job.model), stages)


def check_target(folder: Path, job: TrainingJob) -> None:
    """Refuse to write a model where something is, or one that has no such layout."""
    stored_names(job.model)
    if folder.exists():
        raise InputError("is there", "a model is written into a new folder", where=str(folder))


def save_pretrained(folder: Path, job: TrainingJob, trained: TrainedRank) -> None:
    """Write the newest weights as a folder that transformers reads; every rank calls it.

    In the numbers that they compute with, a file for each stage. The folder gets its name when all
    is there. No rank has more than the tensors of one of its stages in memory beside the stage.
    """
    groups = trained.groups
    check_target(folder, job)
    aside = folder.with_name(folder.name + _ASIDE)
    stages = len(job.plan.stages)
    if not groups.is_first_replica:
        return
    try:
        aside.mkdir(parents=True, exist_ok=True)
        for stage, weights in trained.weights.items():
            tensors = dict(_whole(job, weights.module(weights.newest), groups))
            if groups.is_first_shard:
                write_shard(aside, stage, stages, tensors)
        if groups.is_first_shard and _is_last_writer(folder, groups):
            write_index(aside, job.model, job.stage_of_layer, job.precision.computing)
            aside.rename(folder)
    except OSError as error:
        raise CheckError(f"{folder} cannot be written: {error.strerror}") from error


def _whole(job: TrainingJob, module: StageModule, groups: Groups) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a stage by their names in the layout; all shards call it."""
    names = stored_names(job.model)
    shards = groups.sharded.computing if groups.sharded else None
    for layer in module.names:
        for own, parameter in module.layer(layer).named_parameters():
            if f"{layer}.{own}" in names:
                held = own_parameter(parameter).detach()
                yield (
                    names[f"{layer}.{own}"],
                    part_of(parameter).gather(held, tuple(parameter.shape), shards),
                )


def _is_last_writer(folder: Path, groups: Groups) -> bool:
    return groups.store.add(f"diaulos/pretrained/{folder}", 1) == groups.shape.depth


def _stage_of(job: TrainingJob, parameter: str) -> int:
    return job.stage_of_layer[parameter.partition(".")[0]]
