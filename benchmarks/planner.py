"""How long the exact planner takes, beside the reference implementation's own figures.

Usage: python benchmarks/planner.py [ROWS ...]

Reads the inputs and the reference's figures (its run time on one core) from the folder that
DIAULOS_REFERENCE names, by default ../shared/reference. Each row is planned five times in this
process; the median counts.
"""

import csv
import os
import statistics
import time
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
BANDWIDTH = 25 * GIB
INPUTS = (
    ("BERT-32", "bert32a100.json", "fig1.csv", "piper"),
    ("ResNet-50", "resnet.json", "resnet.csv", "piper_TPS"),
)
REPETITIONS = 5
MOST_DEVICES = 512


def median_seconds(problem: PlanningProblem) -> tuple[float, float]:
    """Median run time, and the time per sample found."""
    seconds = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        result = exact(problem)
        seconds.append(time.perf_counter() - start)
    found = result.evaluation.time_per_sample_seconds if result.evaluation else float("inf")
    return statistics.median(seconds), found


def main() -> None:
    """Print the table."""
    table = Table("input", "devices", "memory", "time per sample", "reference's", "search", "its")
    for name, file, figures, column in INPUTS:
        stored = read_graph(REFERENCE / file)
        with (REFERENCE / figures).open() as rows:
            for row in csv.DictReader(rows):
                if int(row["K"]) > MOST_DEVICES:
                    continue
                problem = PlanningProblem(
                    graph=stored.graph,
                    cluster=Cluster.flat(
                        devices=int(row["K"]),
                        memory_bytes=float(row["memGiB"]) * GIB,
                        bandwidth_bytes_per_second=BANDWIDTH,
                    ),
                    microbatches=1920 if name == "BERT-32" else stored.piper.microbatches,
                )
                seconds, found = median_seconds(problem)
                table.add_row(
                    name,
                    row["K"],
                    f"{row['memGiB']} GiB",
                    f"{found:.9g}",
                    row[column] or "infeasible",
                    format_seconds(seconds),
                    f"{row['piper_runtime_s']} s",
                )
    Console(width=110).print(table)


if __name__ == "__main__":
    if REFERENCE.is_dir():
        main()
    else:
        print(f"skipped: the reference inputs are not at {REFERENCE}")
