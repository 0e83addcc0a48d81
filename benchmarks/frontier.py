"""Figure 2 of Piper's paper, every number of devices from 8 to 2048, beside the reference's values.

Usage: python benchmarks/frontier.py [STEP]

Reads the input and the reference's values from the folder that DIAULOS_REFERENCE names, by default
../shared/reference. BERT-32, 8 GiB, 960 microbatches, links of 25 GB/s. A STEP plans only for every
so many devices.
"""

import csv
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from diaulos.clusters.cluster import Cluster
from diaulos.models.files import read_graph
from diaulos.planning.explanation.comparison import ABLATIONS
from diaulos.planning.explanation.frontier import FrontierPoint, device_clusters, frontier
from diaulos.planning.problem import PlanningProblem
from diaulos.units import format_seconds

REFERENCE = Path(os.environ.get("DIAULOS_REFERENCE", "../shared/reference")) / "piper"
COLUMNS = ("piper", "noDP", "noTP", "noAR")
"""Of the reference's table, in the order of the ablations."""


def largest_differences(
    points: tuple[FrontierPoint, ...], expected: dict[int, float]
) -> tuple[float, float]:
    """How much slower and how much faster than the reference's value a point is at most."""
    ratios = [
        point.result.evaluation.time_per_sample_seconds / expected[point.cluster.devices]
        for point in points
    ]
    return max(ratios) - 1, 1 - min(ratios)


def main(step: int) -> None:
    """Print the table."""
    table = Table("series", "points", "searches", "seconds", "slower by at most", "faster")
    with (REFERENCE / "fig2.csv").open() as file:
        rows = list(csv.DictReader(file))[::step]
    cluster = Cluster.flat(devices=8, memory_bytes=8 * 2**30, bandwidth_bytes_per_second=25e9)
    problem = PlanningProblem(
        graph=read_graph(REFERENCE / "bert32a100.json").graph, cluster=cluster, microbatches=960
    )
    for contender, column in zip(ABLATIONS, COLUMNS, strict=True):
        expected = {int(row["k"]): float(row[column]) for row in rows}
        start = time.perf_counter()
        points = frontier(
            contender.problem(problem), device_clusters(cluster, list(expected)), contender.planner
        )
        seconds = time.perf_counter() - start
        slower, faster = largest_differences(points, expected)
        searches = sum(point.result.search_seconds > 0 for point in points)
        table.add_row(
            contender.name,
            str(len(points)),
            str(searches),
            format_seconds(seconds),
            f"{slower:.1e}",
            f"{faster:.1e}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    if REFERENCE.is_dir():
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    else:
        print(f"skipped: the reference inputs are not at {REFERENCE}")
