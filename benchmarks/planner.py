"""How long the exact planner takes, beside the reference implementation's own figures.

Usage: python benchmarks/planner.py

Reads the inputs and the reference's figures (its run time on one core, its peak memory) from the
folder that DIAULOS_REFERENCE names, by default ../shared/reference. Each problem is planned once to
warm up and five times in this process; the median counts. Peak memory is that of a process of its
own that plans the problem once, interpreter and libraries included.
"""

import csv
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from diaulos.clusters.cluster import Cluster
from diaulos.models.files import read_graph
from diaulos.planning.exact import exact
from diaulos.planning.problem import PlanningProblem
from diaulos.units import format_seconds

REFERENCE = Path(os.environ.get("DIAULOS_REFERENCE", "../shared/reference")) / "piper"
GIB = 2.0**30
REPETITIONS = 5


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A problem with what the reference takes for it, and what to reach."""

    name: str
    file: str
    devices: int
    reference: str
    memory_gib: float | None = None
    """The file's own limit and bandwidth where there is none."""
    microbatches: int | None = None
    most_seconds: float
    most_megabytes: float | None = None

    @property
    def problem(self) -> PlanningProblem:
        """What is planned."""
        stored = read_graph(REFERENCE / self.file)
        assert stored.piper is not None
        memory_bytes, bandwidth = (
            (stored.piper.max_memory_per_device_bytes, stored.piper.bandwidth_bytes_per_second)
            if self.memory_gib is None
            else (self.memory_gib * GIB, 25 * GIB)
        )
        return PlanningProblem(
            graph=stored.graph,
            cluster=Cluster.flat(
                devices=self.devices,
                memory_bytes=memory_bytes,
                bandwidth_bytes_per_second=bandwidth,
            ),
            microbatches=self.microbatches or stored.piper.microbatches,
        )


LARGE = (
    Instance(
        name="BERT-32, 8 GiB, N=1920, K=2048",
        file="bert32a100.json",
        memory_gib=8,
        microbatches=1920,
        devices=2048,
        reference="43 s, 1.5 GB",
        most_seconds=0.25,
        most_megabytes=150,
    ),
    Instance(
        name="BERT-96, N=1920, K=512",
        file="bert96.json",
        microbatches=1920,
        devices=512,
        reference="19 s, 0.26 GB",
        most_seconds=0.3,
    ),
    Instance(
        name="BERT-96, N=1920, K=1024",
        file="bert96.json",
        microbatches=1920,
        devices=1024,
        reference="68 s, 1.0 GB",
        most_seconds=0.5,
    ),
    Instance(
        name="BERT-48, N=1920, K=2048",
        file="bert48.json",
        microbatches=1920,
        devices=2048,
        reference="73 s, 2.0 GB",
        most_seconds=0.4,
        most_megabytes=150,
    ),
    Instance(
        name="BERT-96, N=65536, K=65536",
        file="bert96.json",
        microbatches=65_536,
        devices=65_536,
        reference="cannot",
        most_seconds=10,
        most_megabytes=1000,
    ),
)


def rows(file: str, figures: str, most_seconds: float, most_devices: int) -> list[Instance]:
    """The rows of one of the reference's tables."""
    with (REFERENCE / figures).open() as table:
        return [
            Instance(
                name=f"K={row['K']}, {row['memGiB']} GiB",
                file=file,
                memory_gib=float(row["memGiB"]),
                microbatches=1920 if file == "bert32a100.json" else None,
                devices=int(row["K"]),
                reference=row["piper_runtime_s"],
                most_seconds=most_seconds,
            )
            for row in csv.DictReader(table)
            if int(row["K"]) <= most_devices
        ]


def median_seconds(run: Callable[[], object]) -> float:
    """Of five runs after one to warm up."""
    run()
    seconds = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def peak_megabytes(index: int) -> float:
    """Of a process that plans one of the large instances."""
    command = [sys.executable, __file__, "--peak", str(index)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def cold_seconds() -> float:
    """Of `diaulos plan` on BERT-32 with 64 devices, as a whole process."""
    command = [sys.executable, "-m", "diaulos", "plan", str(REFERENCE / "bert32a100.json")]
    command += ["--devices", "64", "--memory", "8GiB", "--bandwidth", "25GiB/s"]
    return median_seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def met(is_met: bool) -> str:  # noqa: FBT001
    """Yes or no."""
    return "yes" if is_met else "NO"


def large_table() -> Table:
    """The large instances, one a row."""
    table = Table("instance", "reference", "median", "peak", "to reach", "met")
    for index, instance in enumerate(LARGE):
        problem = instance.problem
        seconds, megabytes = median_seconds(lambda p=problem: exact(p)), peak_megabytes(index)
        goal = f"{instance.most_seconds:g} s"
        is_met = seconds < instance.most_seconds
        if instance.most_megabytes is not None:
            goal += f", {instance.most_megabytes:g} MB"
            is_met = is_met and megabytes < instance.most_megabytes
        table.add_row(
            instance.name,
            instance.reference,
            format_seconds(seconds),
            f"{megabytes:.0f} MB",
            goal,
            met(is_met),
        )
    seconds = cold_seconds()
    table.add_row(
        "`diaulos plan`, BERT-32, K=64, cold", "-", format_seconds(seconds), "", "0.6 s",
        met(seconds < 0.6),
    )  # fmt: skip
    return table


def rows_table() -> Table:
    """All rows of the reference's tables, beside its own times."""
    table = Table("input", "row", "reference", "median", "to reach", "met")
    for name, file, figures, most_seconds, most_devices in (
        ("BERT-32", "bert32a100.json", "fig1.csv", 0.05, 128),
        ("ResNet-50", "resnet.json", "resnet.csv", 0.2, 128),
        ("GNMT", "gnmt.json", "gnmt.csv", 10.0, 64),
    ):
        for instance in rows(file, figures, most_seconds, most_devices):
            problem = instance.problem
            seconds = median_seconds(lambda p=problem: exact(p))
            known = float(instance.reference) if instance.reference else float("inf")
            table.add_row(
                name,
                instance.name,
                f"{instance.reference} s" if instance.reference else "not finished",
                format_seconds(seconds),
                f"{most_seconds:g} s",
                met(seconds < most_seconds and seconds <= known),
            )
    return table


def main() -> None:
    """Print the tables, or the peak memory of one instance."""
    if sys.argv[1:2] == ["--peak"]:
        exact(LARGE[int(sys.argv[2])].problem)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        return
    console = Console(width=100)
    console.print(large_table())
    console.print(rows_table())


if __name__ == "__main__":
    if REFERENCE.is_dir():
        main()
    else:
        print(f"skipped: the reference inputs are not at {REFERENCE}")
