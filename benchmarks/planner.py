"""How long the exact planner takes and what it holds, beside the reference's figures and targets.

Usage: python benchmarks/planner.py

Reads the inputs and the reference's figures (one core) from the folder that DIAULOS_REFERENCE
names, by default ../shared/reference. Each problem is planned once, then five times of which the
median counts; a line of several problems shows the slowest, and the least gain over the reference.
The most memory that a process held (Python and numpy included) is that of a fresh one, which plans
the problems of the line once.
"""

import csv
import os
import re
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
from diaulos.models.files import GraphFile, read_graph
from diaulos.planning.exact import exact
from diaulos.planning.problem import PlanningProblem
from diaulos.units import format_seconds

REFERENCE = Path(os.environ.get("DIAULOS_REFERENCE", "../shared/reference")) / "piper"
REPETITIONS = 5
EXACTLY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A problem with what the reference answered, where it was run."""

    problem: PlanningProblem
    reference_seconds: float | None
    reference_megabytes: float | None
    answer: str | None
    """Time per sample; empty where nothing fits; None where the reference was not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Problems of one line of the table, and what it must keep to."""

    name: str
    instances: tuple[Instance, ...]
    most_seconds: float
    most_megabytes: float | None = None
    must_beat_reference: bool = False
    """On every one of its problems."""


def own_limits(
    file: str, layers: str, devices: int, microbatches: int = 1920
) -> tuple[Instance, ...]:
    """A file with the memory and the bandwidth that it states, as scalability.csv has it."""
    stored = read_graph(REFERENCE / file)
    assert stored.piper is not None
    cluster = Cluster.flat(
        devices=devices,
        memory_bytes=stored.piper.max_memory_per_device_bytes,
        bandwidth_bytes_per_second=stored.piper.bandwidth_bytes_per_second,
    )
    problem = PlanningProblem(graph=stored.graph, cluster=cluster, microbatches=microbatches)
    key = {"L": layers, "batch": str(microbatches), "K": str(devices)}
    for row in read_rows("scalability.csv"):
        if row.items() >= key.items():
            return (instance(problem, row, "runtime_s_cpu", "peakMB", "TPS"),)
    return (unknown(problem),)


def table_rows(
    file: str,
    table: str,
    answer: str,
    microbatches: int | None = None,
    wanted: Callable[[dict[str, str]], bool] = lambda _: True,
) -> tuple[Instance, ...]:
    """The problems of a table of the reference's answers."""
    stored = read_graph(REFERENCE / file)
    return tuple(
        instance(
            problem_of(stored, row, microbatches), row, "piper_runtime_s", "piper_peakMB", answer
        )
        for row in read_rows(table)
        if wanted(row)
    )


def read_rows(table: str) -> list[dict[str, str]]:
    """All rows of a table of the reference."""
    with (REFERENCE / table).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def problem_of(stored: GraphFile, row: dict[str, str], microbatches: int | None) -> PlanningProblem:
    """The problem of a row; the tables are for links of 25 GiB/s."""
    assert stored.piper is not None
    return PlanningProblem(
        graph=stored.graph,
        cluster=Cluster.flat(
            devices=int(row["K"]),
            memory_bytes=float(row["memGiB"]) * 2**30,
            bandwidth_bytes_per_second=25.0 * 2**30,
        ),
        microbatches=microbatches or stored.piper.microbatches,
    )


def instance(
    problem: PlanningProblem, row: dict[str, str], seconds: str, megabytes: str, answer: str
) -> Instance:
    """A problem with the figures of a row."""
    was_run = bool(row[seconds])
    return Instance(
        problem=problem,
        reference_seconds=float(row[seconds]) if was_run else None,
        reference_megabytes=float(row[megabytes]) if row[megabytes] else None,
        answer=row[answer] if was_run else None,
    )


def unknown(problem: PlanningProblem) -> Instance:
    """A problem that the reference was never asked."""
    return Instance(problem=problem, reference_seconds=None, reference_megabytes=None, answer=None)


def lines() -> tuple[Line, ...]:
    """What is measured."""

    def largest(row: dict[str, str]) -> bool:
        return row["memGiB"] == "8" and row["K"] == "2048"

    def small(row: dict[str, str]) -> bool:
        return int(row["K"]) <= 128

    bert = ("bert32a100.json", "fig1.csv", "piper", 1920)
    return (
        Line(
            name="BERT-32, 8 GiB, K=2048",
            instances=table_rows(*bert, largest),
            most_seconds=0.25,
            most_megabytes=150,
        ),
        Line(
            name="BERT-96, K=512",
            instances=own_limits("bert96.json", "96", 512),
            most_seconds=0.3,
        ),
        Line(
            name="BERT-96, K=1024",
            instances=own_limits("bert96.json", "96", 1024),
            most_seconds=0.5,
        ),
        Line(
            name="BERT-48, K=2048",
            instances=own_limits("bert48.json", "48", 2048),
            most_seconds=0.4,
            most_megabytes=150,
        ),
        Line(
            name="BERT-32, K<=128",
            instances=table_rows(*bert, small),
            most_seconds=0.05,
            must_beat_reference=True,
        ),
        Line(
            name="ResNet-50, all rows",
            instances=table_rows("resnet.json", "resnet.csv", "piper_TPS"),
            most_seconds=0.2,
        ),
        Line(
            name="GNMT, all rows",
            instances=table_rows("gnmt.json", "gnmt.csv", "piper_TPS"),
            most_seconds=10.0,
        ),
        Line(
            name="BERT-96, K=N=65536",
            instances=own_limits("bert96.json", "96", 65536, 65536),
            most_seconds=10.0,
            most_megabytes=1000,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one problem took."""

    seconds: float
    time_per_sample: float | None


def measure(problem: PlanningProblem) -> Measured:
    """Median seconds of a search, after one that does not count."""
    result = exact(problem)
    seconds = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        exact(problem)
        seconds.append(time.perf_counter() - start)
    assert result.proven_optimal
    found = result.evaluation
    return Measured(
        seconds=statistics.median(seconds),
        time_per_sample=found and found.time_per_sample_seconds,
    )


def peak_megabytes(number: int) -> float:
    """The most that a fresh process holds while it plans the problems of a line."""
    command = [sys.executable, __file__, "--peak", str(number)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def print_own_peak(number: int) -> None:
    """What `peak_megabytes` asks for.

    By the kernel's own account of this program: what `getrusage` says includes the process that
    started it.
    """
    for each in lines()[number].instances:
        exact(each.problem)
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(int(peak) / 1000)


def cold_seconds() -> float:
    """Median seconds of `diaulos plan` as a process, from its start to its end."""
    command = [str(Path(sys.executable).parent / "diaulos"), "plan"]
    command += [str(REFERENCE / "bert32a100.json"), "--devices", "64", "--memory", "8GiB"]
    command += ["--bandwidth", "25GiB/s", "--microbatches", "1920"]
    seconds = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def answers(line: Line, measured: list[Measured]) -> str:
    """How the times per sample compare with the reference's."""
    counts: dict[str, int] = {}
    for each, found in zip(line.instances, measured, strict=True):
        if each.answer is None:
            kind = "new"
        elif not each.answer or found.time_per_sample is None:
            kind = "equal" if not each.answer and found.time_per_sample is None else "WRONG"
        else:
            ratio = found.time_per_sample / float(each.answer)
            kind = "equal" if abs(ratio - 1) <= EXACTLY else "better" if ratio < 1 else "WORSE"
        counts[kind] = counts.get(kind, 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def least_gain(line: Line, measured: list[Measured]) -> float:
    """How many times as long the reference took, on the problem where that is least."""
    return min(
        each.reference_seconds / found.seconds
        for each, found in zip(line.instances, measured, strict=True)
        if each.reference_seconds is not None
    )


def row_of(number: int, line: Line) -> list[str]:
    """A line of the table, measured."""
    measured = [measure(each.problem) for each in line.instances]
    slowest = max(found.seconds for found in measured)
    peak = peak_megabytes(number)
    met = slowest < line.most_seconds and peak < (line.most_megabytes or float("inf"))
    if line.must_beat_reference:
        met = met and least_gain(line, measured) >= 1
    theirs = [i.reference_seconds for i in line.instances if i.reference_seconds is not None]
    held = [i.reference_megabytes for i in line.instances if i.reference_megabytes is not None]
    return [
        line.name,
        span(theirs, "s"),
        f"{max(held):.0f} MB" if held else "-",
        format_seconds(slowest),
        format_seconds(line.most_seconds),
        times(least_gain(line, measured)) if theirs else "-",
        f"{peak:.0f} MB",
        f"{line.most_megabytes} MB" if line.most_megabytes else "-",
        answers(line, measured),
        "yes" if met else "NO",
    ]


def times(ratio: float) -> str:
    """A gain, to two digits where it is small."""
    return f"{ratio:.0f} x" if ratio >= 10 else f"{ratio:.2g} x"


def span(amounts: list[float], unit: str) -> str:
    """The least and the largest amount."""
    if not amounts:
        return "-"
    ends = dict.fromkeys(f"{amount:.3g}" for amount in (min(amounts), max(amounts)))
    return f"{'-'.join(ends)} {unit}"


def main() -> None:
    """Print the table."""
    headings = ("N=1920 but where said", "reference", "held", "search", "target", "gain")
    table = Table(*headings, "peak", "target", "answers", "met")
    for number, line in enumerate(lines()):
        table.add_row(*row_of(number, line))
    cold, most = cold_seconds(), 0.6
    figures = [format_seconds(cold), format_seconds(most)]
    met = "yes" if cold < most else "NO"
    table.add_row("diaulos plan, BERT-32, K=64, cold", "-", "-", *figures, "-", "-", "-", "-", met)
    Console(width=140).print(table)


if __name__ == "__main__":
    if not REFERENCE.is_dir():
        print(f"skipped: the reference inputs are not at {REFERENCE}")
    elif sys.argv[1:2] == ["--peak"]:
        print_own_peak(int(sys.argv[2]))
    else:
        main()
