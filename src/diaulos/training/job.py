"""A training job on one rank: everything built from the plan, and run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.models.layers import LayeredModel
from diaulos.planning.plan import Plan
from diaulos.schedules.check import check
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.training.executor import (
    BatchSource,
    Executor,
    GradientObserver,
    Objective,
    StepObserver,
)
from diaulos.training.failures import FailureBoard
from diaulos.training.groups import Groups
from diaulos.training.links import Links, StageForms, TensorForm, shake_hands
from diaulos.training.records import RankRecorder, StepRecord
from diaulos.training.reduction import BatchReducer
from diaulos.training.stage import PlacedLayer, StageModule, place_layers
from diaulos.training.weights import OptimizerFactory, WeightVersions

RUN_BY_EXECUTOR = ("gpipe", "1f1b", "2bw")


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """What to train and how; the same on every rank."""

    model: LayeredModel
    graph: LayerGraph
    """The model's prices, whose options the plan names."""
    plan: Plan
    schedule: str
    data: BatchSource
    microbatch_size: int
    batches: int
    make_optimizer: OptimizerFactory
    clip_norm: float | None = None
    seed: int = 0
    batches_between_flushes: int = 256
    """Schedules are made and checked for so many batches at a time. A schedule without flushes
    drains in between, which costs one fill and changes no number."""

    def __post_init__(self) -> None:
        for name in ("microbatch_size", "batches", "batches_between_flushes"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise InputError(f"clip_norm is {self.clip_norm}", "it must be above 0, or not given")
        place_layers(self.model, self.graph, self.plan)
        generate(self.schedule, self.shape, 1)
        if self.schedule not in RUN_BY_EXECUTOR:
            raise InputError(
                f"schedule is {self.schedule!r}", f"training runs {', '.join(RUN_BY_EXECUTOR)}"
            )

    @property
    def shape(self) -> PipelineShape:
        """The pipeline that the plan makes."""
        return PipelineShape.of(self.plan)

    @property
    def tokens_per_batch(self) -> int:
        """Terms of the mean that the loss is."""
        return self.model.tokens_per_sample * self.microbatch_size * self.plan.microbatches

    def schedules(self) -> Iterator[Schedule]:
        """Checked schedules that together run all batches."""
        for first in range(0, self.batches, self.batches_between_flushes):
            batches = min(self.batches_between_flushes, self.batches - first)
            schedule = generate(self.schedule, self.shape, batches, first)
            check(schedule)
            yield schedule


@dataclass(frozen=True, kw_only=True)
class TrainedRank:
    """What a rank holds after a run."""

    groups: Groups
    weights: WeightVersions
    steps: list[StepRecord]
    peak_in_flight: int


def train_rank(
    job: TrainingJob,
    groups: Groups,
    *,
    folder: Path | None = None,
    observe_gradients: GradientObserver | None = None,
    observe_step: StepObserver | None = None,
) -> TrainedRank:
    """Run a job on this rank of a run; every rank calls it. Records go to `folder`.

    Raises `RunError`, the same on every rank, naming the rank that failed first.
    """
    placed = place_layers(job.model, job.graph, job.plan)
    forms = stage_forms(job, placed, groups.stage)
    shake_hands(groups, forms)
    schedules = job.schedules()
    first = next(schedules)
    module = StageModule(placed[groups.stage], job.seed).to(groups.device)
    weights = WeightVersions(module, first.weight_versions[groups.stage], job.make_optimizer)
    names = parameter_names(job.model)
    with (
        RankRecorder(groups.rank, folder) as recorder,
        _closing(FailureBoard(groups)) as board,
        _closing(BatchReducer(groups, names.index(weights.names[0]), len(names))) as reducer,
    ):
        executor = Executor(
            groups=groups,
            weights=weights,
            links=Links(groups, forms, board),
            reducer=reducer,
            objective=Objective(
                data=job.data,
                summed_loss=job.model.loss,
                tokens_per_batch=job.tokens_per_batch,
                clip_norm=job.clip_norm,
                parameter_names=names,
            ),
            board=board,
            recorder=recorder,
            observe_gradients=observe_gradients,
            observe_step=observe_step,
        )
        dist.barrier(group=groups.world)
        executor.run(first)
        for schedule in schedules:
            executor.run(schedule)
    return TrainedRank(
        groups=groups,
        weights=weights,
        steps=recorder.steps,
        peak_in_flight=executor.peak_in_flight,
    )


def parameter_names(model: LayeredModel) -> tuple[str, ...]:
    """The names of all parameters of a model, in the order of its layers."""
    names: list[str] = []
    for spec in model.layers:
        with torch.device("meta"):
            names += [f"{spec.name}.{name}" for name, _ in spec.build().named_parameters()]
    return tuple(names)


def stage_forms(
    job: TrainingJob, placed: tuple[tuple[PlacedLayer, ...], ...], stage: int
) -> StageForms:
    """What enters and leaves a stage, found by running the layers up to it without data."""
    inputs, _ = job.model.example(job.microbatch_size)
    hidden: Tensor = inputs.to("meta")
    for index, layers in enumerate(placed):
        entering = TensorForm.of(hidden)
        for layer in layers:
            with torch.device("meta"):
                module = layer.spec.build()
            try:
                hidden = module(hidden)
            except RuntimeError as error:
                raise InputError(
                    f"layer {layer.spec.name} on stage {index} cannot take {TensorForm.of(hidden)}",
                    str(error).splitlines()[0],
                ) from error
        if index == stage:
            break
    return StageForms(input=entering, output=TensorForm.of(hidden))


Helper = TypeVar("Helper", FailureBoard, BatchReducer)


@contextmanager
def _closing(helper: Helper) -> Iterator[Helper]:
    """Close a helper with a thread, unless an error leaves: then peers may never answer it."""
    yield helper
    helper.close()
