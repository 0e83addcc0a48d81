"""Going on from a checkpoint: whether a job can, and what each stage takes from it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from diaulos.errors import InputError
from diaulos.models.layers import LayeredModel
from diaulos.training.checkpoints import Checkpoint, master_key, weight_key
from diaulos.training.job import TrainingJob
from diaulos.training.saving import describe
from diaulos.training.stage import place_layers
from diaulos.training.weights import WeightVersions

_MOST_NAMED = 10


def check_resumable(job: TrainingJob, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint from which a job cannot go on exactly.

    Reads headers only, of all layers: every process can do it alone, and says the same.
    """
    found = checkpoint.description
    wanted = describe(job, job.updates)
    where = str(checkpoint.path)
    for name in ("samples_per_batch", "seed", "optimizer", "precision"):
        if getattr(found, name) != getattr(wanted, name):
            raise InputError(
                f"has {name} {getattr(found, name)}",
                f"the run has {getattr(wanted, name)}, and would go on as another run",
                where=where,
            )
    if found.batches > job.batches:
        raise InputError(f"is of batch {found.batches}", f"the run has {job.batches}", where=where)
    problems = list(_problems(job, checkpoint))
    if problems:
        named = "; ".join(problems[:_MOST_NAMED])
        more = len(problems) - _MOST_NAMED
        raise InputError(named + (f"; and {more} more" if more > 0 else ""), where=where)


def load(stages: Iterable[WeightVersions], checkpoint: Checkpoint, model: LayeredModel) -> None:
    """Give stages the weights and the optimizer's state of a checkpoint."""
    stored = lru_cache(maxsize=2)(checkpoint.tensors)
    for weights in stages:
        weights.restart(checkpoint.description.updates)
        for version in weights.alive:
            for name, parameter in weights.named(version):
                spec, own_name = model.home(name)
                whole = stored(spec.name)[weight_key(own_name, version)]
                with torch.no_grad():
                    parameter.copy_(weights.parts[name].cut(whole))
        for name in weights.updated_names:
            spec, own_name = model.home(name)
            tensors, part = stored(spec.name), weights.parts[name]
            states = stored_state(tensors, own_name)
            newest = tensors[weight_key(own_name, checkpoint.description.updates)]
            master = tensors.get(master_key(own_name), newest)
            weights.restore(
                name,
                {key: part.cut(t).clone() if t.ndim else t for key, t in states.items()},
                part.cut(master),
            )


def stored_state(layer: Mapping[str, Tensor], parameter: str) -> dict[str, Tensor]:
    """The optimizer's tensors for a parameter, out of all that is stored of its layer."""
    found = {}
    for stored, tensor in layer.items():
        kind, _, name = stored.partition("/")
        if name == parameter and kind.startswith("optimizer."):
            found[kind.removeprefix("optimizer.")] = tensor.clone()
    return found


def _problems(job: TrainingJob, checkpoint: Checkpoint) -> Iterator[str]:
    """What the model's stages need and the checkpoint lacks or has otherwise, and the reverse."""
    names = [spec.name for spec in job.model.layers]
    described = checkpoint.description.layers
    headers = {layer: checkpoint.header(layer) for layer in described}
    for stage, layers in enumerate(place_layers(job.model, job.graph, job.plan)):
        for name in (layer.spec.name for layer in layers):
            if name not in described:
                yield f"lacks layer {name} of stage {stage}"
    for layer in described:
        if layer not in names:
            yield f"has layer {layer}, which the model lacks"
    for parameter, shape in job.model.parameter_shapes().items():
        spec, name = job.model.home(parameter)
        stage = job.stage_of_layer[job.model.split(parameter)[0].name]
        delay = job.first_schedule.gradient_delays[stage]
        updates = checkpoint.description.updates
        versions = range(max(updates - delay, 0), updates + 1)
        for version in versions if spec.name in headers else ():
            stored = headers[spec.name].get(weight_key(name, version))
            if stored is None:
                yield f"lacks version {version} of {parameter}, {list(shape)} on stage {stage}"
            elif stored.shape != shape:
                found = list(stored.shape)
                yield f"has {parameter} as {found}, which is {list(shape)} on stage {stage}"
