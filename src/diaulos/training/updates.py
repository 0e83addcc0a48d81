"""What a rank does at the end of a batch: hand over its gradients, update, write down the step."""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

import torch
from torch import Tensor

from diaulos.errors import CheckError
from diaulos.schedules.actions import Action
from diaulos.schedules.schedule import Schedule
from diaulos.training.failures import FailureBoard
from diaulos.training.groups import Groups
from diaulos.training.holdings import HeldStage
from diaulos.training.learning_rates import LearningRateSchedule
from diaulos.training.links import Links
from diaulos.training.loss_scale import LossScale
from diaulos.training.metrics import Throughput, peak_memory_bytes
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.records import RankRecorder, StepRecord
from diaulos.training.reduction import (
    BatchReducer,
    BatchShare,
    BatchTotals,
    HandedOver,
    clip_coefficient,
    squared_norms,
)

GradientObserver = Callable[[int, Sequence[str], Sequence[Tensor]], None]
"""Sees batch, names and summed gradients before they are clipped and applied."""
StepObserver = Callable[[StepRecord], None]
UpdateObserver = Callable[[int], None]
"""Sees how many updates all stages of the rank have had, before any of them has another."""
Result = TypeVar("Result")


class Updater:
    """The batches of one rank, from the last backward of each stage to the record of the step."""

    def __init__(
        self,
        *,
        groups: Groups,
        held: Mapping[int, HeldStage],
        links: Links,
        reducer: BatchReducer,
        board: FailureBoard,
        recorder: RankRecorder,
        parameter_names: Sequence[str],
        throughput: Throughput,
        clip_norm: float | None,
        learning_rate: LearningRateSchedule,
        mitigation: DelayMitigation,
        loss_scale: LossScale | None,
        after_update: UpdateObserver,
        observe_gradients: GradientObserver | None,
        observe_step: StepObserver | None,
    ) -> None:
        self._groups = groups
        self._held = held
        self._links = links
        self._reducer = reducer
        self._board = board
        self._recorder = recorder
        self._parameter_names = parameter_names
        self._throughput = throughput
        self._clip_norm = clip_norm
        self._learning_rate = learning_rate
        self._mitigation = mitigation
        self._loss_scale = loss_scale
        self._after_update = after_update
        self._observe_gradients = observe_gradients
        self._observe_step = observe_step
        self._schedule: Schedule | None = None
        self._losses: defaultdict[int, float] = defaultdict(float)
        """By batch, what this rank has added to it."""
        self._handed_over: defaultdict[int, dict[int, HandedOver]] = defaultdict(dict)
        """By batch and stage; what is updated is taken out."""
        self._totals: dict[int, Future[BatchTotals]] = {}
        self._scales: dict[int, float] = {}
        """By batch that is handed over and not yet recorded, by what its loss was multiplied."""
        self._step_seconds: dict[int, float] = {}
        """By batch, from this rank's last backward of the batch before to its last of this one."""
        self._needed: dict[int, float] = {}
        """By batch, when this rank first needed its sums, by `time.perf_counter`."""
        self._unrecorded: deque[int] = deque()
        self._last_end = recorder.now()

    def begin(self, schedule: Schedule) -> None:
        """Get ready for the batches of a schedule."""
        self._schedule = schedule
        self._last_end = self._recorder.now()
        self._recorder.take_busy_seconds()  # updates after the last step belong to none

    def add_loss(self, batch: int, loss: Tensor) -> None:
        """Note what a microbatch adds to the loss of its batch."""
        self._losses[batch] += float(loss)

    def hand_over(self, action: Action) -> None:
        """Begin to sum the gradients of a stage."""
        assert self._schedule is not None
        batch = action.number
        version = self._schedule.version_of(action.stage, batch * self._schedule.shape.microbatches)
        handed_over = self._handed_over[batch]
        gradients = self._held[action.stage].weights.take_gradients(version)
        if self._loss_scale is not None:
            self._scales[batch] = self._loss_scale.of(batch)
        handed_over[action.stage] = self._reducer.hand_over(action.stage, gradients)
        if len(handed_over) == len(self._groups.stages):
            end = self._recorder.now()
            step_seconds, self._last_end = end - self._last_end, end
            share = BatchShare(
                stages=dict(handed_over),
                loss=self._losses.pop(batch, 0.0),
                busy_seconds=self._recorder.take_busy_seconds(),
                step_seconds=step_seconds,
                memory_bytes=peak_memory_bytes(self._groups.device),
                weight_versions=max(held.weights.peak_alive for held in self._held.values()),
            )
            self._totals[batch] = self._reducer.total(share)
            self._step_seconds[batch] = step_seconds

    def scale(self, batch: int) -> float | None:
        """By what the loss of a batch under way is multiplied; None where it is not."""
        return None if self._loss_scale is None else self._loss_scale.of(batch)

    def update(self, action: Action) -> None:
        """Make the next version of a stage's weights, when all that it needs is summed."""
        batch, weights = action.number, self._held[action.stage].weights
        gradients = self._handed_over[batch][action.stage].gradients
        self._needed.setdefault(batch, time.perf_counter())
        norms, norm = self._norms(action)
        start = self._recorder.now()
        scale = self._scales.get(batch, 1.0)
        overflowed = self._overflowed(batch, norms)
        if not overflowed:
            self._apply(action, gradients, scale, norm / scale)
        else:
            weights.skip()
        self._share(action)
        if self._loss_scale is not None:
            self._loss_scale.decide(batch, overflowed=overflowed)
        self._recorder.action(action, start)
        del self._handed_over[batch][action.stage]
        if not self._handed_over[batch]:
            self._end_batch(batch)

    def _apply(self, action: Action, gradients: list[Tensor], scale: float, norm: float) -> None:
        """Update with gradients that are to be divided by a scale, and whose norm then is this."""
        batch, weights = action.number, self._held[action.stage].weights
        replicas = self._held[action.stage].replicas
        if scale != 1 and gradients:
            torch._foreach_mul_(gradients, 1 / scale)
        if self._observe_gradients is not None:
            own = replicas.updated
            summed = [gradients[place] for place in own]
            self._observe_gradients(batch, weights.updated_names, summed)
        coefficient = clip_coefficient(norm, self._clip_norm)
        if coefficient is not None and gradients:
            torch._foreach_mul_(gradients, coefficient)
        skipped = 0 if self._loss_scale is None else self._loss_scale.skipped
        assert self._schedule is not None
        delay = self._schedule.gradient_delays[action.stage]
        share = self._learning_rate.share(batch - skipped)
        share *= self._mitigation.rate_share(batch - skipped, delay)
        predict = self._mitigation.predicts(batch)
        weights.update(gradients, learning_rate_share=share, predict=predict)

    def _share(self, action: Action) -> None:
        """Exchange what each replica has updated, where they share the optimizer."""
        held = self._held[action.stage]
        with self._board.waiting_for(self._board.others):
            try:
                held.replicas.share(held.weights.newest_weights())
            except RuntimeError as error:
                raise self._board.blame(str(action), error) from error

    def _overflowed(self, batch: int, norms: Mapping[str, float]) -> bool:
        """Whether the update is to be skipped; raises where no smaller scale would help."""
        bad = [name for name, square in norms.items() if not square < float("inf")]
        if not bad:
            return False
        if self._scales.get(batch, 1.0) > 1:
            return True
        names = ", ".join(bad[:10])
        raise CheckError(f"the gradient is not finite in {len(bad)} parameters: {names}")

    def finish(self) -> None:
        """Write down the steps whose totals were not waited for."""
        while self._unrecorded:
            batch = self._unrecorded.popleft()
            self._record(batch, self._wait(self._totals.pop(batch), f"the end of batch {batch}"))

    def _norms(self, action: Action) -> tuple[Mapping[str, float], float]:
        """The squared norms that are known at an update, by parameter, and the global norm."""
        batch, stage = action.number, action.stage
        assert self._schedule is not None
        if self._schedule.updates_stage_by_stage:
            handed_over = self._handed_over[batch][stage]
            self._wait(handed_over.summed, str(action))
            own = self._held[stage].replicas.updated
            squares = squared_norms([handed_over.gradients[place] for place in own])
            names = self._held[stage].weights.updated_names
            return dict(zip(names, squares.tolist(), strict=True)), 0.0
        totals = self._wait(self._totals[batch], str(action))
        squares = totals.squared_norms
        return dict(zip(self._parameter_names, squares.tolist(), strict=True)), totals.gradient_norm

    def _wait(self, future: "Future[Result]", action: str) -> Result:
        with self._board.waiting_for(self._board.others):
            try:
                return future.result()
            except RuntimeError as error:
                raise self._board.blame(action, error) from error

    def _end_batch(self, batch: int) -> None:
        del self._handed_over[batch]
        self._after_update(batch + 1)
        self._unrecorded.append(batch)
        while self._unrecorded and self._totals[self._unrecorded[0]].done():
            done = self._unrecorded.popleft()
            self._record(done, self._totals.pop(done).result())

    def _record(self, batch: int, totals: BatchTotals) -> None:
        self._links.settle_batch(batch)
        scale = self._scales.pop(batch, None)
        norm = totals.gradient_norm / (scale or 1.0)
        step_seconds = self._step_seconds.pop(batch)
        slack = self._needed.pop(batch) - totals.there_seconds
        schedule = self._schedule
        assert schedule is not None
        record = StepRecord(
            batch=batch,
            loss=totals.loss,
            gradient_norm=norm if math.isfinite(norm) else None,
            loss_scale=scale,
            step_seconds=step_seconds,
            tokens_per_second=self._throughput.tokens_per_update / step_seconds,
            model_flops_utilization=self._throughput.utilization(step_seconds),
            bubble_fraction=totals.bubble_fraction,
            memory_bytes=totals.memory_bytes,
            gradient_delay=max(schedule.gradient_delays[stage] for stage in self._held),
            slack_seconds=None if schedule.updates_stage_by_stage else slack,
            weight_versions=totals.weight_versions,
            in_flight=self._recorder.peak_in_flight,
        )
        self._recorder.step(record)
        if self._observe_step is not None:
            self._observe_step(record)
