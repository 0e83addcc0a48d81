"""The same training in one process, written without a pipeline: what every run is compared with.

A batch is computed microbatch by microbatch on the weights that the schedule's law names, the
gradients are summed replica by replica as the plan's stages would, and the update is applied to
the newest weights: W(t+1) = W(t) - step(grad f_t(W(max(t - delay, 0)))).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diaulos.schedules.generators import generate
from diaulos.training.job import TrainingJob
from diaulos.training.reduction import clip_coefficient, squared_norms
from diaulos.training.stage import PlacedLayer, StageModule, place_layers


@dataclass(frozen=True, kw_only=True)
class SerialRun:
    """All that a serial run has computed."""

    losses: list[float]
    gradients: list[dict[str, Tensor]]
    """Of each batch, summed and not clipped, by parameter name."""
    versions: list[dict[str, Tensor]]
    """The weights after 0, 1, 2, ... updates."""
    optimizer_state: dict[str, dict[str, Tensor]]


def train_serially(job: TrainingJob) -> SerialRun:
    """Run a job in this process, on the CPU.

    It equals a pipeline's run bit for bit where each stage has one or two replicas: every
    operation sees the same numbers, and sums are taken in the same order (a sum of two does not
    depend on it).
    """
    delay = generate(job.schedule, job.shape, 1).gradient_delays[0]
    placed = place_layers(job.model, job.graph, job.plan)
    module = StageModule([layer for stage in placed for layer in stage], job.seed)
    names = [name for name, _ in module.named_weights()]
    newest = [parameter for _, parameter in module.named_weights()]
    computing = copy.deepcopy(module)
    optimizer = job.make_optimizer(newest)
    losses, gradients, versions = [], [], [_snapshot(names, newest)]
    for batch in range(job.batches):
        used = versions[max(batch - delay, 0)]
        _load(computing, used)
        loss, summed = _batch_gradients(job, placed, computing, batch)
        losses.append(loss)
        gradients.append(dict(zip(names, [gradient.clone() for gradient in summed], strict=True)))
        _apply(job, optimizer, newest, summed)
        versions.append(_snapshot(names, newest))
    state = {
        name: dict(optimizer.state[parameter])
        for name, parameter in zip(names, newest, strict=True)
    }
    return SerialRun(losses=losses, gradients=gradients, versions=versions, optimizer_state=state)


def _batch_gradients(
    job: TrainingJob,
    placed: tuple[tuple[PlacedLayer, ...], ...],
    module: StageModule,
    batch: int,
) -> tuple[float, list[Tensor]]:
    """The loss of a batch and its gradients, summed as the replicas of each stage sum them."""
    degrees = _degree_of_each_parameter(job, placed, module)
    parameters = [parameter for _, parameter in module.named_weights()]
    partial_sums: list[dict[int, Tensor]] = [{} for _ in parameters]
    last_degree = job.shape.replicas[-1]
    losses = [0.0] * last_degree
    for microbatch in range(job.plan.microbatches):
        inputs, targets = job.data(batch, microbatch)
        loss = job.model.loss(module(inputs), targets) / job.tokens_per_batch
        loss.backward()  # type: ignore[no-untyped-call]
        losses[microbatch % last_degree] += float(loss.detach())
        for parameter, degree, sums in zip(parameters, degrees, partial_sums, strict=True):
            assert parameter.grad is not None
            replica = microbatch % degree
            if replica in sums:
                sums[replica] += parameter.grad
            else:
                sums[replica] = parameter.grad
            parameter.grad = None
    summed = [_sum_in_order([sums[r] for r in sorted(sums)]) for sums in partial_sums]
    return sum(losses), summed


def _degree_of_each_parameter(
    job: TrainingJob, placed: tuple[tuple[PlacedLayer, ...], ...], module: StageModule
) -> list[int]:
    degree_of_layer = {
        layer.spec.name: degree
        for layers, degree in zip(placed, job.shape.replicas, strict=True)
        for layer in layers
    }
    return [
        degree_of_layer[name]
        for name, layer in zip(module.names, module.layers, strict=True)
        for _ in layer.parameters()
    ]


def _sum_in_order(tensors: Sequence[Tensor]) -> Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def _apply(
    job: TrainingJob,
    optimizer: torch.optim.Optimizer,
    newest: Sequence[torch.nn.Parameter],
    summed: Sequence[Tensor],
) -> None:
    norm = float(squared_norms(summed).sum().sqrt())
    coefficient = clip_coefficient(norm, job.clip_norm)
    for parameter, gradient in zip(newest, summed, strict=True):
        parameter.grad = gradient if coefficient is None else gradient * coefficient
    optimizer.step()
    for parameter in newest:
        parameter.grad = None


def _snapshot(names: Sequence[str], parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    return {
        name: parameter.detach().clone() for name, parameter in zip(names, parameters, strict=True)
    }


def _load(module: StageModule, weights: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in module.named_weights():
            parameter.copy_(weights[name])
