"""One rank of a training job: everything built from the plan, and run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from diaulos.errors import InputError
from diaulos.models.layers import as_stream, meta_layer
from diaulos.training.checkpoints import Checkpoint
from diaulos.training.evaluation import EvaluationRecord, forwards_only
from diaulos.training.executor import Executor
from diaulos.training.failures import FailureBoard
from diaulos.training.groups import Groups
from diaulos.training.holdings import HeldStage, hold_stage
from diaulos.training.job import TrainingJob
from diaulos.training.links import EdgeForm, Links, StageForms, shake_hands
from diaulos.training.profiling import ProfilerWindow, StepProfiler, profile_path
from diaulos.training.records import RankRecorder, StepRecord
from diaulos.training.reduction import BatchReducer
from diaulos.training.resuming import load
from diaulos.training.saving import Checkpointing, CheckpointSettings, describe
from diaulos.training.stage import PlacedLayer, place_layers
from diaulos.training.stopping import Stopping, StopSignal
from diaulos.training.ties import TiedGradients
from diaulos.training.updates import GradientObserver, StepObserver, Updater
from diaulos.training.weights import WeightVersions

EvaluationObserver = Callable[[EvaluationRecord], None]


@dataclass(frozen=True, kw_only=True)
class TrainedRank:
    """What a rank holds after a run."""

    groups: Groups
    weights: Mapping[int, WeightVersions]
    """By stage."""
    steps: list[StepRecord]
    evaluations: list[EvaluationRecord]
    peak_in_flight: int


def train_rank(
    job: TrainingJob,
    groups: Groups,
    *,
    folder: Path | None = None,
    checkpoints: CheckpointSettings | None = None,
    resume_from: Checkpoint | None = None,
    profiled: ProfilerWindow | None = None,
    stops_on_sigterm: bool = False,
    observe_gradients: GradientObserver | None = None,
    observe_step: StepObserver | None = None,
    observe_evaluation: EvaluationObserver | None = None,
) -> TrainedRank:
    """Run a job on this rank of a run; every rank calls it. Records and traces go to `folder`.

    With `resume_from` it goes on from a checkpoint, which `check_resumable` has accepted. Raises
    `RunError`, the same on every rank, naming the rank that failed first. With `stops_on_sigterm`,
    on the main thread, a SIGTERM on any rank has all write a checkpoint and raise `StoppedError`:
    what is left of their communication is then of no use, and the process should end.
    """
    placed = place_layers(job.model, job.graph, job.plan)
    forms = {stage: stage_forms(job, placed, stage) for stage in groups.stages}
    shake_hands(groups, forms)
    held = {stage: hold_stage(job, placed[stage], stage, groups) for stage in groups.stages}
    weights = {stage: own.weights for stage, own in held.items()}
    names = tuple(name for name in job.model.parameter_shapes() if name not in job.model.ties)
    done = resume_from.description if resume_from else describe(job, 0)
    loss_scale = job.make_loss_scale(decided=done.updates, state=done.loss_scale)
    window = profiled.batches(job.updates // job.batches) if profiled and folder else range(0)
    profiler = StepProfiler(window, profile_path(folder or Path(), groups.rank), groups.device)
    with (
        RankRecorder(
            groups.row, folder, shard=groups.shard, resumed_updates=done.updates
        ) as recorder,
        _closing(FailureBoard(groups)) as board,
        _closing(
            BatchReducer(
                groups,
                parameters=names,
                held=held,
                ties=TiedGradients(groups, job, held.values()),
            )
        ) as reducer,
        _closing(Checkpointing(job, groups, weights, loss_scale, checkpoints)) as checkpointing,
        _closing(
            Stopping(groups, board, done=done.updates, stride=job.updates // job.batches)
        ) as stopping,
    ):
        with board.reporting("loading the checkpoint"):
            if resume_from is not None:
                load(weights.values(), resume_from, job.model)
        is_predicted = job.mitigation.extrapolated_weights
        if resume_from is not None and not is_predicted:  # what it holds may be
            for own in held.values():
                own.weights.settle(own.replicas.share)
        links = Links(groups, forms, board)

        def after_update(updates: int) -> None:
            is_last = updates == job.updates or stopping.passed(updates)
            checkpointing.after_update(updates, is_last=is_last)

        updater = Updater(
            groups=groups,
            held=held,
            links=links,
            reducer=reducer,
            board=board,
            recorder=recorder,
            parameter_names=names,
            throughput=job.throughput,
            clip_norm=job.clip_norm,
            learning_rate=job.learning_rate,
            mitigation=job.mitigation,
            loss_scale=loss_scale,
            after_update=after_update,
            observe_gradients=observe_gradients,
            observe_step=observe_step,
        )
        executor = Executor(
            groups=groups,
            weights=weights,
            forms=forms,
            links=links,
            updater=updater,
            objective=job.objective,
            board=board,
            recorder=recorder,
            stopping=stopping,
        )
        board.meet("the start")
        with StopSignal(stopping.asked) if stops_on_sigterm else nullcontext():
            first_batch = done.batches
            for schedule in job.schedules(done.batches, cuts=(window.start, window.stop)):
                profiler.before(first_batch)
                executor.run(schedule)
                if stopping.stopped_after is not None:
                    break
                batches = (schedule.batch_numbers.stop * job.batches) // job.updates
                profiler.after(batches - 1)
                first_batch = batches
                with _settled(held.values()):
                    _evaluate(job, batches, executor, recorder, observe_evaluation)
            with board.reporting("the last checkpoint"):
                checkpointing.finish()
            stopping.leave()
        if is_predicted:
            for own in held.values():
                own.weights.settle(own.replicas.share)
        board.meet("the end")
    return TrainedRank(
        groups=groups,
        weights=weights,
        steps=recorder.steps,
        evaluations=recorder.evaluations,
        peak_in_flight=recorder.peak_in_flight,
    )


def _evaluate(
    job: TrainingJob,
    batches: int,
    executor: Executor,
    recorder: RankRecorder,
    observe: EvaluationObserver | None,
) -> None:
    """Evaluate, if it is time to after so many batches."""
    evaluation, objective = job.evaluation, job.evaluation_objective
    if evaluation is None or objective is None or not evaluation.is_due(batches, job.batches):
        return
    loss = executor.evaluate(objective, forwards_only(job.shape, evaluation.microbatches))
    record = EvaluationRecord(batches=batches, loss=loss)
    recorder.evaluation(record)
    if observe is not None:
        observe(record)


def stage_forms(
    job: TrainingJob, placed: tuple[tuple[PlacedLayer, ...], ...], stage: int
) -> StageForms:
    """What enters and leaves a stage, found by running the layers up to it without data."""
    inputs, _ = job.model.example(job.microbatch_size)
    stream = tuple(job.precision.computed(tensor).to("meta") for tensor in as_stream(inputs))
    for index, layers in enumerate(placed):
        entering = EdgeForm.of(stream)
        for layer in layers:
            module = meta_layer(layer.spec).to(job.precision.computing)
            try:
                stream = as_stream(module(*stream))
            except (RuntimeError, TypeError) as error:
                raise InputError(
                    f"layer {layer.spec.name} on stage {index} cannot take {EdgeForm.of(stream)}",
                    str(error).splitlines()[0],
                ) from error
        if index == stage:
            break
        stream = tuple(t.detach().requires_grad_(t.requires_grad) for t in stream)
    return StageForms(input=entering, output=EdgeForm.of(stream))


@contextmanager
def _settled(held: Iterable[HeldStage]) -> Iterator[None]:
    """The newest weights themselves meanwhile, where versions are predictions."""
    with ExitStack() as stack:
        for own in held:
            stack.enter_context(own.weights.settled(own.replicas.share))
        yield


Helper = TypeVar("Helper", FailureBoard, BatchReducer, Checkpointing, Stopping)


@contextmanager
def _closing(helper: Helper) -> Iterator[Helper]:
    """Close a helper with a thread, unless an error leaves: then peers may never answer it."""
    yield helper
    helper.close()
