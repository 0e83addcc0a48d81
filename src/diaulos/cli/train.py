"""`diaulos train`: run a plan on this machine's processes, or as a worker of torchrun."""

from pathlib import Path

from rich.console import Console

from diaulos.training.launch import is_worker, launch, work
from diaulos.training.run_file import read_run


def train(run: Path) -> None:
    """Train what a run file says.

    Starts the ranks through torchrun's launcher on this machine. Started by torchrun itself
    (`torchrun ... -m diaulos train RUN.toml`, on several machines), it is one of the ranks.

    Parameters
    ----------
    run
        The run file, TOML.
    """
    described = read_run(run)
    if is_worker():
        work(described)
        return
    launch(["train", str(run)], described.job.shape.ranks)
    Console(highlight=False).print(f"records: {described.folder}")
