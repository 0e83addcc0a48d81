"""The executor: does a rank's actions, one after another, as the schedule lists them."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from diaulos.errors import CheckError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule
from diaulos.training.failures import FailureBoard, RunError
from diaulos.training.groups import Groups
from diaulos.training.links import Links
from diaulos.training.records import RankRecorder, StepRecord
from diaulos.training.reduction import BatchReducer, BatchShare, BatchSums, clip_coefficient
from diaulos.training.weights import Lease, WeightVersions

BatchSource = Callable[[int, int], tuple[Tensor, Tensor]]
"""(batch, microbatch within it) to inputs and targets; the same on every rank."""
GradientObserver = Callable[[int, Sequence[str], Sequence[Tensor]], None]
"""Sees batch, names and summed gradients before they are clipped and applied."""
StepObserver = Callable[[StepRecord], None]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is minimised: the mean loss per token over the whole batch."""

    data: BatchSource
    summed_loss: Callable[[Tensor, Tensor], Tensor]
    tokens_per_batch: int
    clip_norm: float | None
    parameter_names: tuple[str, ...]
    """Of the whole model."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The part of the batch's mean loss that a microbatch adds: the one place of scaling."""
        return self.summed_loss(outputs, targets) / self.tokens_per_batch


@dataclass(slots=True)
class _InFlight:
    """A microbatch between its forward and its backward."""

    lease: Lease
    input: Tensor
    root: GradientEdge
    """Where the backward begins: of the output, or on the last stage of the loss. The output
    itself is not kept."""


class Executor:
    """One rank at work. `run` may be called again with a schedule of later batches."""

    def __init__(
        self,
        *,
        groups: Groups,
        weights: WeightVersions,
        links: Links,
        reducer: BatchReducer,
        objective: Objective,
        board: FailureBoard,
        recorder: RankRecorder,
        observe_gradients: GradientObserver | None = None,
        observe_step: StepObserver | None = None,
    ) -> None:
        self._groups = groups
        self._weights = weights
        self._links = links
        self._reducer = reducer
        self._objective = objective
        self._board = board
        self._recorder = recorder
        self._observe_gradients = observe_gradients
        self._observe_step = observe_step
        self._in_flight: dict[int, _InFlight] = {}
        self.peak_in_flight = 0
        self._arrived: dict[int, Tensor] = {}
        """Tensors received and not yet used: of forwards or backwards, never of both at a time."""
        self._leaving: dict[int, Tensor] = {}
        """Tensors computed and not yet sent."""
        self._reductions: dict[int, tuple[Future[BatchSums], float]] = {}
        """By batch: its sums to come, and when its last backward ended."""
        self._gradients_version = 0
        """The version that the last backward added gradients to."""
        self._loss = 0.0
        self._busy_seconds = 0.0
        self._last_batch_end = recorder.now()
        self._do = {
            Kind.FORWARD: self._forward,
            Kind.BACKWARD: self._backward,
            Kind.SEND_FORWARD: self._send,
            Kind.SEND_BACKWARD: self._send,
            Kind.RECEIVE_FORWARD: self._receive,
            Kind.RECEIVE_BACKWARD: self._receive,
            Kind.REDUCE: self._reduce,
            Kind.UPDATE: self._update,
        }

    def run(self, schedule: Schedule) -> None:
        """Do all actions of this rank; raises `RunError` naming whoever failed first."""
        actions = schedule.actions[self._groups.rank]
        self._last_batch_end = self._recorder.now()
        self._links.expect(schedule)
        for action in actions:
            try:
                self._do[action.kind](action)
            except RunError:
                raise
            except Exception as error:  # whatever it was, the other ranks must hear of it
                raise self._board.report(str(action), error) from error

    def _forward(self, action: Action) -> None:
        start = self._recorder.now()
        assert action.version is not None
        lease = self._weights.lease(action.version)
        hidden, targets = self._inputs(action.number)
        output = lease.module(hidden)
        if targets is None:
            self._leaving[action.number] = output.detach()
        else:
            output = self._objective.loss(output, targets)
            self._loss += float(output.detach())
        self._in_flight[action.number] = _InFlight(lease, hidden, get_gradient_edge(output))
        self.peak_in_flight = max(self.peak_in_flight, len(self._in_flight))
        self._busy_seconds += self._recorder.action(action, start)

    def _inputs(self, microbatch: int) -> tuple[Tensor, Tensor | None]:
        """What the stage takes, and on the last stage the targets."""
        hidden = targets = None
        if self._groups.is_first_stage or self._groups.is_last_stage:
            batch, within = divmod(microbatch, self._groups.shape.microbatches)
            tensors = self._objective.data(batch, within)
            hidden, targets = (tensor.to(self._groups.device) for tensor in tensors)
        if not self._groups.is_first_stage:
            hidden = self._arrived.pop(microbatch).requires_grad_()
        assert hidden is not None
        return hidden, targets if self._groups.is_last_stage else None

    def _backward(self, action: Action) -> None:
        start = self._recorder.now()
        stashed = self._in_flight.pop(action.number)
        if stashed.lease.version != action.version:
            raise CheckError(
                f"its forward used version {stashed.lease.version} of the weights and its backward "
                f"is to use {action.version}"
            )
        gradient = None if self._groups.is_last_stage else self._arrived.pop(action.number)
        torch.autograd.backward(stashed.root, gradient)
        self._gradients_version = stashed.lease.version
        self._weights.release(stashed.lease)
        if not self._groups.is_first_stage:
            assert stashed.input.grad is not None
            self._leaving[action.number] = stashed.input.grad
        self._busy_seconds += self._recorder.action(action, start)

    def _send(self, action: Action) -> None:
        self._links.send(action, self._leaving.pop(action.number))

    def _receive(self, action: Action) -> None:
        self._arrived[action.number] = self._links.receive(action)

    def _reduce(self, action: Action) -> None:
        share = BatchShare(
            gradients=self._weights.take_gradients(self._gradients_version),
            loss=self._loss,
            busy_seconds=self._busy_seconds,
        )
        self._loss = self._busy_seconds = 0.0
        self._reductions[action.number] = (self._reducer.start(share), self._recorder.now())

    def _update(self, action: Action) -> None:
        future, batch_end = self._reductions.pop(action.number)
        try:
            sums = future.result()
        except RuntimeError as error:
            raise self._board.blame(str(action), error) from error
        start = self._recorder.now()
        self._links.settle_batch(action.number)
        self._check_finite(sums)
        if self._observe_gradients is not None:
            self._observe_gradients(action.number, self._weights.names, sums.gradients)
        coefficient = clip_coefficient(sums.gradient_norm, self._objective.clip_norm)
        if coefficient is not None:
            torch._foreach_mul_(sums.gradients, coefficient)
        self._weights.update(sums.gradients)
        self._busy_seconds += self._recorder.action(action, start)
        self._record(action.number, sums, batch_end)

    def _check_finite(self, sums: BatchSums) -> None:
        bad = (~sums.squared_norms.isfinite()).nonzero().flatten().tolist()
        if bad:
            names = ", ".join(self._objective.parameter_names[index] for index in bad[:10])
            raise CheckError(f"the gradient is not finite in {len(bad)} parameters: {names}")

    def _record(self, batch: int, sums: BatchSums, batch_end: float) -> None:
        step_seconds = batch_end - self._last_batch_end
        self._last_batch_end = batch_end
        record = StepRecord(
            batch=batch,
            loss=sums.loss,
            gradient_norm=sums.gradient_norm,
            step_seconds=step_seconds,
            tokens_per_second=self._objective.tokens_per_batch / step_seconds,
            bubble_fraction=1.0 - sums.busy_seconds / (self._groups.shape.ranks * step_seconds),
            weight_versions=self._weights.peak_alive,
            in_flight=self.peak_in_flight,
        )
        self._recorder.step(record)
        if self._observe_step is not None:
            self._observe_step(record)
