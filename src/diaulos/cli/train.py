"""`diaulos train`: run a plan on this machine's processes, or as a worker of torchrun."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from diaulos.training.launch import is_worker, launch, starting_point, work
from diaulos.training.run_file import read_run


def train(run: Path, *, resume: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Train what a run file says.

    Starts the ranks through torchrun's launcher on this machine. Started by torchrun itself
    (`torchrun ... -m diaulos train RUN.toml`, on several machines), it is one of the ranks.

    Parameters
    ----------
    run
        The run file, TOML.
    resume
        Go on from the newest checkpoint of the run's folder; start where there is none.
    """
    described = read_run(run)
    checkpoint = starting_point(described, resume=resume)
    if is_worker():
        work(described, checkpoint)
        return
    if checkpoint is not None:
        Console(highlight=False).print(f"resuming from {checkpoint.path}")
    options = ["--resume"] if resume else []
    launch(["train", str(run), *options], described.job.grid.ranks)
    Console(highlight=False).print(f"records: {described.folder}")
