"""Starting the ranks of a run: by torchrun's own launcher, or as one of torchrun's workers."""

import os
import signal
import sys
from contextlib import ExitStack
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.rendezvous import rendezvous

from diaulos.errors import CheckError, DiaulosError, InputError
from diaulos.training.checkpoints import Checkpoint, latest_checkpoint
from diaulos.training.console import Console
from diaulos.training.evaluation import EvaluationRecord
from diaulos.training.groups import make_groups
from diaulos.training.logs import open_logs
from diaulos.training.rank import train_rank
from diaulos.training.records import StepRecord
from diaulos.training.resuming import check_resumable
from diaulos.training.run_file import RunFile
from diaulos.training.stopping import StoppedError


def is_worker() -> bool:
    """Whether this process was started by torchrun as one of the ranks of a run."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launch(arguments: list[str], ranks: int) -> None:
    """Run `python -m diaulos ARGUMENTS` as this many ranks on this machine, until they end.

    Raises `CheckError` where one fails; what it said stands above, in its own words.
    """
    from torch.distributed import run  # noqa: PLC0415 - takes a second, only launching needs it

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # ranks share the cores; torchrun says so too
    options = ["--standalone", f"--nproc-per-node={ranks}", "-m", "diaulos", *arguments]
    try:
        run.run(run.parse_args(options))  # type: ignore[no-untyped-call]
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        sys.exit(128 + error.sigval)  # as shells say that a signal ended it
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        status = failure.exitcode
        if status == InputError.exit_status:
            raise InputError(
                f"rank {rank} refused its input", "what it says stands above"
            ) from None
        if status == StoppedError.exit_status:
            sys.exit(status)
        how = f"with exit status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        raise CheckError(f"rank {rank} ended first, {how}; what it says stands above") from None


def starting_point(run: RunFile, *, resume: bool) -> Checkpoint | None:
    """The checkpoint to go on from, None for the start.

    To resume is to go on from the newest checkpoint, or to start where there is none. An
    `InputError` where the run cannot go on from it, or where a fresh start would mix two runs.
    """
    if run.checkpoints is None:
        if resume:
            raise InputError(
                "the run has no checkpoints",
                "only a run that writes some can be resumed",
                "give it a [checkpoints] table",
                where=str(run.path),
            )
        return None
    checkpoint = latest_checkpoint(run.checkpoints.folder)
    if checkpoint is None:
        return None
    if not resume:
        raise InputError(
            f"{checkpoint.path} is there from an earlier run",
            "a run starts in a folder without checkpoints",
            "go on from it with --resume, or name another folder",
            where=str(run.path),
        )
    check_resumable(run.job, checkpoint)
    return checkpoint


def work(run: RunFile, checkpoint: Checkpoint | None) -> None:
    """Be one rank of a run, as torchrun has numbered it; ends the process where the run fails."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the launcher speaks for all ranks
    store, rank, world_size = next(rendezvous("env://", timeout=_timeout(run)))
    dist.init_process_group(
        "gloo",
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=_timeout(run),
    )
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = torch.device("cpu")
    try:
        groups = make_groups(
            run.job.shape,
            store,
            device,
            shards=run.job.grid.shards,
            timeout_seconds=run.timeout_seconds,
        )
        speaker = _Speaker(run, checkpoint) if groups.is_speaker else None
        trained = train_rank(
            run.job,
            groups,
            folder=run.folder,
            checkpoints=run.checkpoints,
            resume_from=checkpoint,
            profiled=run.profiled,
            stops_on_sigterm=run.checkpoints is not None,
            observe_step=speaker.step if speaker else None,
            observe_evaluation=speaker.evaluation if speaker else None,
        )
        if speaker is not None:
            speaker.close()
        if run.pretrained_folder is not None:
            from diaulos.training.pretrained import save_pretrained  # noqa: PLC0415 - loads more

            save_pretrained(run.pretrained_folder, run.job, trained)
    except StoppedError as stopped:
        if groups.is_speaker:
            behind = "\n" if sys.stdout.isatty() else ""  # the line that lives there
            print(f"{behind}diaulos: {stopped}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(stopped.exit_status)
    except DiaulosError as error:
        print(f"diaulos: [rank {rank}] {error}", file=sys.stderr, flush=True)  # noqa: T201
        # Not a normal end: that would wait for threads and connections which wait for peers.
        os._exit(error.exit_status)
    dist.destroy_process_group()


class _Speaker:
    """The one rank that tells of the run: on the console and in the logs that are asked for."""

    def __init__(self, run: RunFile, checkpoint: Checkpoint | None) -> None:
        resumed = checkpoint.description.updates if checkpoint else 0
        self._console = Console(run.job.schedule, run.job.updates)
        self._opened = ExitStack()
        opened = open_logs(run.logs, run.folder, resumed_updates=resumed)
        self._logs = self._opened.enter_context(opened)

    def step(self, record: StepRecord) -> None:
        """Tell of a step."""
        for log in (self._console, *self._logs):
            log.step(record)

    def evaluation(self, record: EvaluationRecord) -> None:
        """Tell of an evaluation."""
        for log in (self._console, *self._logs):
            log.evaluation(record)

    def close(self) -> None:
        """End the logs."""
        self._opened.close()


def _timeout(run: RunFile) -> timedelta:
    return timedelta(seconds=run.timeout_seconds)
