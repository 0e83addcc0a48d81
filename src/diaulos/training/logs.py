"""The steps of a run in TensorBoard and in Weights & Biases, beside its own records."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from diaulos.errors import InputError
from diaulos.training.evaluation import EvaluationRecord
from diaulos.training.records import StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Which logs are written; the packages must be there."""

    tensorboard: bool = False
    wandb_project: str | None = None

    def __post_init__(self) -> None:
        if self.tensorboard:
            _require("tensorboard")
        if self.wandb_project is not None:
            _require("wandb")


class StepLog(Protocol):
    """Where the speaker of a run writes its steps, counted from 1 as on the console."""

    def step(self, record: StepRecord) -> None:
        """Write a step."""

    def evaluation(self, record: EvaluationRecord) -> None:
        """Write an evaluation."""


class TensorBoardLog:
    """Scalars for TensorBoard, in the folder `tensorboard` of the run."""

    def __init__(self, writer: Any) -> None:
        """`writer` is a `SummaryWriter`."""
        self._writer = writer

    def step(self, record: StepRecord) -> None:
        """Write a step."""
        for name, value in scalars(record).items():
            self._writer.add_scalar(f"train/{name}", value, record.batch + 1)
        self._writer.flush()

    def evaluation(self, record: EvaluationRecord) -> None:
        """Write an evaluation, after so many batches."""
        self._writer.add_scalar("evaluation/loss", record.loss, record.batches)


class WandbLog:
    """Metrics for Weights & Biases."""

    def __init__(self, run: Any) -> None:
        """`run` is what `wandb.init` gave."""
        self._run = run

    def step(self, record: StepRecord) -> None:
        """Write a step."""
        found = {f"train/{name}": value for name, value in scalars(record).items()}
        self._run.log({"step": record.batch + 1, **found})

    def evaluation(self, record: EvaluationRecord) -> None:
        """Write an evaluation, after so many batches."""
        self._run.log({"batches": record.batches, "evaluation/loss": record.loss})


def scalars(record: StepRecord) -> dict[str, float]:
    """The figures of a step by name, those that are not known left out."""
    figures = {key: value for key, value in asdict(record).items() if key != "batch"}
    return {key: value for key, value in figures.items() if value is not None}


@contextmanager
def open_logs(
    settings: LogSettings, folder: Path, *, resumed_updates: int = 0
) -> Iterator[Sequence[StepLog]]:
    """The logs of a run, closed at the end; what was logged behind a checkpoint is dropped."""
    logs: list[StepLog] = []
    with ExitStack() as stack:
        if settings.tensorboard:
            # Takes a second to import, and only the speaker of a run that asks for it needs it.
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

            writer = stack.enter_context(
                SummaryWriter(
                    str(folder / "tensorboard"),
                    purge_step=resumed_updates + 1 if resumed_updates else None,
                )
            )
            logs.append(TensorBoardLog(writer))
        if settings.wandb_project is not None:
            import wandb  # noqa: PLC0415 - an extra

            run = wandb.init(project=settings.wandb_project, dir=str(folder), name=folder.name)
            run.define_metric("train/*", step_metric="step")
            run.define_metric("evaluation/*", step_metric="batches")
            stack.callback(run.finish)
            logs.append(WandbLog(run))
        yield logs


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise InputError(
            f"{package} is not installed",
            "the run file asks for its log, which that package writes",
            f"pip install 'diaulos[{package}]'",
        )
