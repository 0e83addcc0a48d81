"""What a rank writes down while it runs, and how the measured timeline is read from it."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, parse_action
from diaulos.schedules.events import Event
from diaulos.schedules.timeline import Timeline
from diaulos.training.evaluation import EvaluationRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One batch, as a rank saw it."""

    batch: int
    loss: float
    """Mean per token over the whole batch; the same on every rank."""
    gradient_norm: float | None
    """Of the whole model, before clipping; the same on every rank. None where gradients overflowed
    in low precision, so that the update was skipped."""
    step_seconds: float
    """From this rank's last backward of the batch before to that of this batch."""
    tokens_per_second: float
    model_flops_utilization: float | None
    """The operations of the model, whatever is recomputed, over what all devices could do at their
    peak; None where that is not known."""
    bubble_fraction: float
    """The share of the step in which the average rank neither computed nor updated; the same on
    every rank."""
    memory_bytes: float
    """The most that any rank has held so far: on a device what torch has allocated there, on a CPU
    all of the process."""
    gradient_delay: int
    """By how many updates the weights of the gradients are older than those that are updated, the
    most of all stages of this rank."""
    weight_versions: int
    """The most versions alive on any rank so far."""
    slack_seconds: float | None
    """How long all sums over the batch were there before this rank needed them; below 0 where it
    waited for them. None where updates do not need those of other stages."""
    in_flight: int
    """The most microbatches between forward and backward on this rank so far."""
    loss_scale: float | None = None
    """By what the loss was multiplied for the backward; None where it was not."""


class RankRecorder:
    """Actions with their times and steps of one rank, kept, and written to a file where asked."""

    def __init__(
        self, rank: int, folder: Path | None, *, shard: int = 0, resumed_updates: int = 0
    ) -> None:
        """`rank` is that of the schedule, whose actions all its shards do.

        With `resumed_updates` the file is gone on with, from so many updates on.
        """
        self.rank = rank
        self.steps: list[StepRecord] = []
        self.evaluations: list[EvaluationRecord] = []
        self.peak_in_flight = 0
        self._busy_seconds = 0.0
        # Wall-clock time of day, so that ranks agree; advanced by a clock that never jumps.
        self._epoch_seconds = time.time() - time.perf_counter()
        self._file = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = record_path(folder, rank, shard)
            if resumed_updates:
                _drop_torn_line(path)
            self._file = path.open("a" if resumed_updates else "w", encoding="utf-8")
            if resumed_updates:
                self._write({"resumed": resumed_updates})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def now(self) -> float:
        """The time in seconds."""
        return self._epoch_seconds + time.perf_counter()

    def note_in_flight(self, count: int) -> None:
        """Note how many microbatches are in flight."""
        self.peak_in_flight = max(self.peak_in_flight, count)

    def take_busy_seconds(self) -> float:
        """The seconds of all actions since this was asked last."""
        busy, self._busy_seconds = self._busy_seconds, 0.0
        return busy

    def action(self, action: Action, start_seconds: float) -> None:
        """Note an action that ends now."""
        end_seconds = self.now()
        self._busy_seconds += end_seconds - start_seconds
        self._write({"action": str(action), "start": start_seconds, "end": end_seconds})

    def step(self, record: StepRecord) -> None:
        """Note a step, and make all that was noted so far readable to others."""
        self.steps.append(record)
        self._write({"step": asdict(record)})
        if self._file is not None:
            self._file.flush()

    def evaluation(self, record: EvaluationRecord) -> None:
        """Note an evaluation."""
        self.evaluations.append(record)
        self._write({"evaluation": asdict(record)})
        if self._file is not None:
            self._file.flush()

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")


def record_path(folder: Path, rank: int, shard: int = 0) -> Path:
    """Where the record of a rank of the schedule, or of another of its shards, stands."""
    return folder / (f"rank_{rank}_shard_{shard}.jsonl" if shard else f"rank_{rank}.jsonl")


def read_measured_timeline(
    folder: Path, name: str, microbatches: int, *, last_batches: int | None = None
) -> Timeline:
    """The measured timeline of a run since it was last resumed, its first action at 0 seconds.

    With `last_batches` of no more than these, from their computations on.
    """
    events = [
        event
        for rank in range(_ranks_recorded(folder))
        for event in _events(rank, _lines(folder, rank))
    ]
    if last_batches is not None:
        numbers = [event.action.number for event in events if event.action.kind.is_compute]
        first = max(numbers, default=0) // microbatches + 1 - last_batches
        events = [event for event in events if _batch_of(event.action, microbatches) >= first]
    start = min((event.start_seconds for event in events), default=0.0)
    return Timeline(
        name=name,
        microbatches=microbatches,
        events=tuple(
            Event(e.rank, e.action, e.start_seconds - start, e.end_seconds - start) for e in events
        ),
    )


def _events(rank: int, lines: list[dict[str, Any]]) -> Iterator[Event]:
    """The actions of a rank since the run was last resumed."""
    begin = max((i for i, line in enumerate(lines) if "resumed" in line), default=0)
    for line in lines[begin:]:
        if "action" in line:
            yield Event(rank, parse_action(line["action"]), line["start"], line["end"])


def _batch_of(action: Action, microbatches: int) -> int:
    """The batch of a computation or an update, which has its number."""
    return action.number // microbatches if action.kind.is_compute else action.number


def read_steps(folder: Path) -> list[list[StepRecord]]:
    """The steps of a run, by rank; those that were done again after it was resumed count once."""
    return [_steps(_lines(folder, rank)) for rank in range(_ranks_recorded(folder))]


def _steps(lines: list[dict[str, Any]]) -> list[StepRecord]:
    steps: list[StepRecord] = []
    for line in lines:
        if "resumed" in line:
            steps = [step for step in steps if step.batch < line["resumed"]]
        elif "step" in line:
            steps.append(StepRecord(**line["step"]))
    return steps


def _ranks_recorded(folder: Path) -> int:
    ranks = sum("shard" not in path.name for path in folder.glob("rank_*.jsonl"))
    if ranks == 0:
        raise InputError("has no record of a run", "it has a rank_0.jsonl", where=str(folder))
    return ranks


def _lines(folder: Path, rank: int) -> list[dict[str, Any]]:
    """All that is whole: a rank that is killed may leave a last line in part."""
    text = record_path(folder, rank).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _drop_torn_line(path: Path) -> None:
    """Cut off what a rank that was killed has left behind its last whole line."""
    if path.exists():
        written = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(written.rfind(b"\n") + 1)
