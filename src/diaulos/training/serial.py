"""The same training in one process, written without a pipeline: what every run is compared with.

The gradient of an update is computed microbatch by microbatch on the weights that the schedule's
law names for each stage, summed replica by replica as the plan's stages would, and applied to the
newest weights: W(t+1) = W(t) - step(grad f_t(W(max(t - delay, 0)))).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from diaulos.schedules.schedule import Schedule
from diaulos.training.checkpoints import Checkpoint, master_key
from diaulos.training.job import TrainingJob
from diaulos.training.precision import Precision
from diaulos.training.reduction import clip_coefficient, squared_norms
from diaulos.training.resuming import stored_state
from diaulos.training.stage import StageModule, place_layers

Tensors = dict[str, Tensor]
"""By parameter name."""


@dataclass(frozen=True, kw_only=True)
class SerialRun:
    """All that a serial run has computed."""

    losses: list[float]
    gradients: dict[int, Tensors]
    """Summed and not clipped, by update, counted from 0; without those that were skipped."""
    versions: dict[int, Tensors]
    """The weights that compute, by the updates that they have had."""
    masters: Tensors
    """The newest weights in the numbers in which they are updated."""
    optimizer_state: dict[str, Tensors]
    evaluations: dict[int, float]
    """The loss of the held-out data, by the batches done before."""


def train_serially(job: TrainingJob, *, resume_from: Checkpoint | None = None) -> SerialRun:
    """Run a job in this process, on the CPU, from the start or from a checkpoint.

    It equals a pipeline's run bit for bit where each stage has one or two replicas: every
    operation sees the same numbers, and sums are taken in the same order (a sum of two does not
    depend on it).
    """
    placed = place_layers(job.model, job.graph, job.plan)
    layers = [layer for stage in placed for layer in stage]
    computing = StageModule(layers, job.seed, dtype=job.precision.computing)
    newest = {
        name: Parameter(weight.detach().to(job.precision.updating, copy=True))
        for name, weight in computing.named_weights()
    }
    stages = {
        f"{layer}.{name}": job.stage_of_layer[layer] for layer, name, _ in computing.weights()
    }
    optimizer = job.make_optimizer(list(newest.items()))
    rates = [group["lr"] for group in optimizer.param_groups]
    losses, gradients, evaluations, versions = [], {}, {}, {0: _snapshot(newest, job.precision)}
    first, scale = 0, job.make_loss_scale()
    if resume_from is not None:
        first = resume_from.description.updates
        versions = _resume(job, newest, optimizer, resume_from)
        scale = job.make_loss_scale(decided=first, state=resume_from.description.loss_scale)
    delays = job.first_schedule.gradient_delays
    for update in range(first, job.updates):
        on_time = job.mitigation.flushes(update)
        delay_of = {name: 0 if on_time else delays[stage] for name, stage in stages.items()}
        used = {name: max(update - delay, 0) for name, delay in delay_of.items()}
        _load(computing, {name: versions[version][name] for name, version in used.items()})
        before = {name: weight.detach().clone() for name, weight in newest.items()}
        factor = scale.of(update) if scale else 1.0
        loss, summed = _update_gradients(job, computing, update, stages, factor)
        losses.append(loss)
        overflowed = not all(bool(gradient.isfinite().all()) for gradient in summed.values())
        if not overflowed:
            gradients[update] = {name: gradient.clone() for name, gradient in summed.items()}
            number = update - (scale.skipped if scale else 0)
            share = job.learning_rate.share(number)
            # With mitigation all stages have the same delay; without it the share is 1.
            share *= job.mitigation.rate_share(number, max(delay_of.values()))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share
            _apply(job, optimizer, newest, summed)
        if scale is not None:
            scale.decide(update, overflowed=overflowed)
        after = {name: weight.detach().clone() for name, weight in newest.items()}
        ahead = after
        if job.mitigation.predicts(update) and update + 1 < job.updates:
            ahead = {name: weight + (weight - before[name]) for name, weight in after.items()}
        versions[update + 1] = _snapshot(ahead, job.precision)
        batches, rest = divmod((update + 1) * job.batches, job.updates)
        if job.evaluation and rest == 0 and job.evaluation.is_due(batches, job.batches):
            _load(computing, _snapshot(after, job.precision))
            evaluations[batches] = _evaluate(job, computing)
    state = {name: dict(optimizer.state[parameter]) for name, parameter in newest.items()}
    return SerialRun(
        losses=losses,
        gradients=gradients,
        versions=versions,
        masters={name: weight.detach().clone() for name, weight in newest.items()},
        optimizer_state=state,
        evaluations=evaluations,
    )


def _resume(
    job: TrainingJob,
    newest: Mapping[str, Parameter],
    optimizer: torch.optim.Optimizer,
    checkpoint: Checkpoint,
) -> dict[int, Tensors]:
    """Give the newest weights and the optimizer's state; the versions that are stored."""
    versions: defaultdict[int, Tensors] = defaultdict(dict)
    stored = {spec.name: checkpoint.tensors(spec.name) for spec in job.model.layers}
    for name, parameter in newest.items():
        spec, own_name = job.model.home(name)
        optimizer.state[parameter] = stored_state(stored[spec.name], own_name)
        for key, tensor in stored[spec.name].items():
            kind, _, key_name = key.partition("/")
            if kind.startswith("weights.") and key_name == own_name:
                versions[int(kind.removeprefix("weights."))][name] = tensor
        rounded = versions[checkpoint.description.updates][name]
        with torch.no_grad():
            parameter.copy_(stored[spec.name].get(master_key(own_name), rounded))
    if not job.mitigation.extrapolated_weights:  # where the run before predicted them
        versions[checkpoint.description.updates] = _snapshot(newest, job.precision)
    return dict(versions)


def _update_gradients(
    job: TrainingJob,
    module: StageModule,
    update: int,
    stages: Mapping[str, int],
    scale: float,
) -> tuple[float, Tensors]:
    """The loss of an update and its gradients, summed as the replicas of each stage sum them."""
    each = job.microbatches_per_update
    objective = job.objective
    losses, gradients = [], []
    for microbatch in range(update * each, (update + 1) * each):
        outputs = module(objective.inputs(microbatch), microbatch)
        loss = objective.loss(outputs, microbatch)
        loss.backward(torch.full_like(loss, scale))  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()))
        gradients.append(_take_gradients(module, job.precision))
    summed = {}
    for name, stage in stages.items():
        by_replica = _orders(job.first_schedule, stage)
        sums = [_sum([gradients[index][name] for index in order]) for order in by_replica]
        summed[name] = _sum(sums) / scale
    _tie(job, summed)
    return _sum_losses(job, losses), summed


def _evaluate(job: TrainingJob, module: StageModule) -> float:
    objective = job.evaluation_objective
    assert objective is not None
    module.eval()
    with torch.no_grad():
        losses = [
            float(objective.loss(module(objective.inputs(number), number), number))
            for number in range(objective.microbatches)
        ]
    module.train()
    return _sum_losses(job, losses)


def _sum_losses(job: TrainingJob, losses: Sequence[float]) -> float:
    """As the replicas of the last stage sum them."""
    degree = job.shape.replicas[job.shape.homes[-1]]
    return sum(sum(losses[replica::degree]) for replica in range(degree))


def _tie(job: TrainingJob, gradients: Tensors) -> None:
    """Give tied parameters the sum of their gradients."""
    for owner in dict.fromkeys(job.model.ties.values()):
        names = [owner, *(tied for tied, kept in job.model.ties.items() if kept == owner)]
        if names[0] in gradients:  # and not frozen
            total = _sum([gradients[name] for name in names])
            gradients.update(dict.fromkeys(names, total))


def _take_gradients(module: StageModule, precision: Precision) -> Tensors:
    gradients = {}
    for name, parameter in module.named_weights():
        gradient = parameter.grad
        if gradient is None:  # unused in this microbatch
            gradient = torch.zeros_like(parameter)
        gradients[name] = gradient.to(precision.updating)
        parameter.grad = None
    return gradients


def _orders(schedule: Schedule, stage: int) -> list[list[int]]:
    """The microbatches of an update in the order of their backwards, by replica of a stage."""
    each = schedule.shape.microbatches
    return [
        [
            action.number
            for action in schedule.actions[rank]
            if action.stage == stage and action.kind.ends_backward and action.number < each
        ]
        for rank in schedule.shape.ranks_of(stage)
    ]


def _sum(tensors: Sequence[Tensor]) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def _apply(
    job: TrainingJob,
    optimizer: torch.optim.Optimizer,
    newest: Mapping[str, Parameter],
    gradients: Mapping[str, Tensor],
) -> None:
    counted = [gradient for name, gradient in gradients.items() if name not in job.model.ties]
    coefficient = clip_coefficient(float(squared_norms(counted).sum().sqrt()), job.clip_norm)
    for name, parameter in newest.items():
        gradient = gradients[name]
        parameter.grad = gradient if coefficient is None else gradient * coefficient
    optimizer.step()
    for parameter in newest.values():
        parameter.grad = None


def _snapshot(weights: Mapping[str, Tensor], precision: Precision) -> Tensors:
    """Copies of weights, as they are computed with."""
    return {
        name: weight.detach().to(precision.computing, copy=True) for name, weight in weights.items()
    }


def _load(module: StageModule, weights: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in module.named_weights():
            parameter.copy_(weights[name])
