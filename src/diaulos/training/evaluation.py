"""Evaluation: forwards of held-out data on the newest weights, which leave no trace."""

from dataclasses import dataclass, replace

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.training.objective import BatchSource


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is evaluated, and how often. The pipeline is drained before."""

    data: BatchSource
    """Its batch 0 is what is evaluated, each time."""
    microbatches: int
    every_batches: int
    """And at the end."""

    def __post_init__(self) -> None:
        for name in ("microbatches", "every_batches"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")

    def is_due(self, batches: int, all_batches: int) -> bool:
        """Whether it is time to evaluate after so many batches."""
        return batches % self.every_batches == 0 or batches == all_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """The loss of the held-out data, the same on every rank."""

    batches: int
    """Of the training data, done before."""
    loss: float


def forwards_only(shape: PipelineShape, microbatches: int) -> Schedule:
    """One batch of forwards: each stage runs all its microbatches, in order."""
    shape = replace(shape, microbatches=microbatches)
    return Schedule(
        name="evaluation",
        shape=shape,
        first_batch=0,
        batches=1,
        gradient_delays=(0,) * shape.stages,
        in_flight_limits=(0,) * shape.depth,
        actions=tuple(_row(shape, rank) for rank in range(shape.ranks)),
    )


def _row(shape: PipelineShape, rank: int) -> tuple[Action, ...]:
    row = []
    for stage in shape.stages_of(rank):
        for number in shape.microbatches_of(rank, 0):
            if stage > 0 and shape.is_handed_over(stage - 1):
                row.append(Action(stage, Kind.RECEIVE_FORWARD, number))
            row.append(Action(stage, Kind.FORWARD, number))
            if shape.is_handed_over(stage):
                row.append(Action(stage, Kind.SEND_FORWARD, number))
    return tuple(row)
