"""Inputs of published planners and what they answered, which stand outside the project."""

import csv
import os
from functools import cache
from pathlib import Path

import pytest

from diaulos.clusters.cluster import Cluster
from diaulos.models.piper import PiperFile, read_piper
from diaulos.planning.problem import PlanningProblem
from diaulos.units import parse_bandwidth

_PROJECT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("DIAULOS_REFERENCE", _PROJECT / "../shared/reference")) / "piper"

needs_reference = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no reference inputs at {FOLDER} (set DIAULOS_REFERENCE)"
)


@cache
def piper_file(name: str) -> PiperFile:
    """One of the inputs of Piper's paper."""
    return read_piper(FOLDER / name)


def rows(name: str, *, most_devices: int) -> list[dict[str, str]]:
    """Rows of a table of answers, up to a number of devices; none where it is absent."""
    if not FOLDER.is_dir():
        return []
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if int(row["K"]) <= most_devices]


def label(row: dict[str, str]) -> str:
    """How a test calls a row."""
    return f"{row['memGiB']}GiB-{row['K']}"


def problem_of(
    file: PiperFile, row: dict[str, str], microbatches: int, **switches: bool
) -> PlanningProblem:
    """The problem that a row answers; all tables are for links of 25 GiB/s."""
    cluster = Cluster.flat(
        devices=int(row["K"]),
        memory_bytes=float(row["memGiB"]) * 2**30,
        bandwidth_bytes_per_second=parse_bandwidth("25GiB/s"),
    )
    return PlanningProblem(graph=file.graph, cluster=cluster, microbatches=microbatches, **switches)


def expected_seconds(text: str) -> float | None:
    """The time of an entry; None where it says that nothing fits."""
    return None if text in ("", "OOM") else float(text)
