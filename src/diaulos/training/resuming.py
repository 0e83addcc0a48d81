"""Going on from a checkpoint: whether a job can, and what each stage takes from it."""

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from diaulos.errors import InputError
from diaulos.training.checkpoints import Checkpoint, weight_key
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
    for name in ("samples_per_batch", "seed", "optimizer"):
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


def load(stages: Iterable[WeightVersions], checkpoint: Checkpoint) -> None:
    """Give stages the weights and the optimizer's state of a checkpoint."""
    for weights in stages:
        weights.restart(checkpoint.description.updates)
        newest = weights.module(weights.newest)
        stored = {layer: checkpoint.tensors(layer) for layer in newest.names}
        with torch.no_grad():
            for version in weights.alive:
                for layer, name, parameter in weights.module(version).weights():
                    parameter.copy_(stored[layer][weight_key(name, version)])
        for layer, name, parameter in newest.weights():
            weights.optimizer.state[parameter] = stored_state(stored[layer], name)


def stored_state(layer: Mapping[str, Tensor], parameter: str) -> dict[str, Tensor]:
    """The optimizer's tensors for a parameter, out of all that is stored of its layer."""
    found = {}
    for stored, tensor in layer.items():
        kind, _, name = stored.partition("/")
        if name == parameter and kind.startswith("optimizer."):
            found[kind.removeprefix("optimizer.")] = tensor
    return found


def _problems(job: TrainingJob, checkpoint: Checkpoint) -> Iterator[str]:
    """What the model's stages need and the checkpoint lacks or has otherwise, and the reverse."""
    described = set(checkpoint.description.layers)
    updates = checkpoint.description.updates
    for stage, layers in enumerate(place_layers(job.model, job.graph, job.plan)):
        delay = job.first_schedule.gradient_delays[stage]
        for spec in (layer.spec for layer in layers):
            if spec.name not in described:
                yield f"lacks layer {spec.name} of stage {stage}"
                continue
            with torch.device("meta"):
                module = spec.build()
            yield from _layer_problems(
                module,
                checkpoint,
                f"{spec.name}",
                stage,
                range(max(updates - delay, 0), updates + 1),
            )
    names = {spec.name for spec in job.model.layers}
    for layer in checkpoint.description.layers:
        if layer not in names:
            yield f"has layer {layer}, which the model lacks"


def _layer_problems(
    module: nn.Module, checkpoint: Checkpoint, layer: str, stage: int, versions: range
) -> Iterator[str]:
    header = checkpoint.header(layer)
    for name, parameter in module.named_parameters():
        for version in versions:
            stored = header.get(weight_key(name, version))
            if stored is None:
                yield (
                    f"lacks version {version} of {layer}.{name}, {list(parameter.shape)} on stage "
                    f"{stage}"
                )
            elif stored.shape != tuple(parameter.shape):
                yield (
                    f"has {layer}.{name} as {list(stored.shape)}, which is "
                    f"{list(parameter.shape)} on stage {stage}"
                )
