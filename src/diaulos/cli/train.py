"""`diaulos train`: run a plan on this machine's processes, or as a worker of torchrun."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from diaulos.cli.dry_run import show_dry_run
from diaulos.cli.output import make_console, note
from diaulos.reporting.trace import write_trace
from diaulos.schedules.timeline import write_timeline
from diaulos.training.launch import is_worker, launch, starting_point, work
from diaulos.training.records import read_measured_timeline, record_path
from diaulos.training.run_file import RunFile, read_run

_TIMELINE_BATCHES = 100
"""So many of the last: a timeline of a long run would be as long."""


def train(
    run: Path,
    *,
    resume: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train what a run file says.

    Starts the ranks through torchrun's launcher on this machine. Started by torchrun itself
    (`torchrun ... -m diaulos train RUN.toml`, on several machines), it is one of the ranks.

    Parameters
    ----------
    run
        The run file, TOML.
    resume
        Go on from the newest checkpoint of the run's folder; start where there is none.
    dry_run
        Start nothing: check files, shapes, schedule and memory, and say what each rank would hold
        and do. Exit status 1 where a rank could not hold it.
    """
    described = read_run(run)
    checkpoint = starting_point(described, resume=resume)
    if dry_run:
        show_dry_run(described)
        return
    if is_worker():
        work(described, checkpoint)
        done = 0 if checkpoint is None else checkpoint.description.updates
        if os.environ["RANK"] == "0" and done < described.job.updates:
            _write_timeline(described)
        return
    console = make_console()
    if checkpoint is not None:
        console.print(f"resuming from {checkpoint.path}")
    options = ["--resume"] if resume else []
    launch(["train", str(run), *options], described.job.grid.ranks)
    console.print(f"records: {described.folder}")


def _write_timeline(run: RunFile) -> None:
    """Write what the ranks did, when all of them have ended, as a timeline and as a trace."""
    rows = range(run.job.shape.ranks)
    missing = [row for row in rows if not record_path(run.folder, row).exists()]
    if missing:
        note(
            f"no timeline: the records of ranks {', '.join(map(str, missing))} are on other "
            "machines; gather them in one folder for diaulos trace diff"
        )
        return
    timeline = read_measured_timeline(
        run.folder,
        f"{run.job.schedule} measured",
        run.job.microbatches_per_update,
        last_batches=_TIMELINE_BATCHES,
    )
    write_timeline(run.folder / "timeline.json", timeline)
    write_trace(run.folder / "trace.json", [timeline])
