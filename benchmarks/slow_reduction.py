"""What slow sums of gradients over replicas cost 2BW and 1F1B, beside what the simulator says.

Usage: python benchmarks/slow_reduction.py

Two stages of two replicas that sleep instead of computing; each sum sleeps as well, for as many
pairs of a forward and a backward as the table says. 2BW leaves m - (d-1-r) pairs to stage r.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from sleeping import FORWARD_SECONDS, INPUT_SECONDS, WEIGHT_SECONDS, make_job, stage_costs
from torch import Tensor

from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link
from diaulos.schedules.generation.endless import update_slack
from diaulos.schedules.generators import generate
from diaulos.schedules.simulate import Simulator
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import read_measured_timeline
from diaulos.training.replicas import StageReplicas
from diaulos.units import format_seconds

DEPTH, WIDTH, MICROBATCHES, BATCHES = 2, 2, 3, 6
"""Microbatches are those of a replica."""
PAIRS = (0, 1, 2, 3, 4, 5)
SCHEDULES = ("2bw", "1f1b")
PAIR_SECONDS = FORWARD_SECONDS + INPUT_SECONDS + WEIGHT_SECONDS


def wide_job(schedule: str) -> TrainingJob:
    """The job of the sleeping stages, with replicas."""
    job = make_job(schedule, DEPTH)
    stages = tuple(replace(stage, data_parallel=WIDTH) for stage in job.plan.stages)
    plan = replace(job.plan, stages=stages, microbatches=WIDTH * MICROBATCHES)
    return replace(job, plan=plan, batches=BATCHES)


def run_all(rank: LocalRank, jobs: list[TrainingJob], folder: Path) -> None:
    """All jobs on this rank with sums of all lengths, one after another."""
    store = join_group(rank)
    groups = make_groups(jobs[0].shape, store, torch.device("cpu"))
    add_up = StageReplicas.sum
    for job in jobs:
        for pairs in PAIRS:

            def sum_slowly(
                replicas: StageReplicas, gradients: Sequence[Tensor], pairs: int = pairs
            ) -> None:
                time.sleep(pairs * PAIR_SECONDS)
                add_up(replicas, gradients)

            name = f"{job.schedule}_{pairs}"
            own = replace(groups, shape=job.shape, store=dist.PrefixStore(name, store))
            with patch.object(StageReplicas, "sum", sum_slowly):
                train_rank(job, own, folder=folder / name)


def predicted_seconds(job: TrainingJob, pairs: int) -> float:
    """What the simulator says of a step."""
    schedule = generate(job.schedule, job.shape, job.batches)
    reduce_seconds = pairs * PAIR_SECONDS
    costs = [replace(cost, reduce_seconds=reduce_seconds) for cost in stage_costs(DEPTH, DEPTH)]
    return Simulator(schedule, check(schedule)).timeline(costs, Link()).step_seconds


def main() -> None:
    """Print the table."""
    jobs = [wide_job(name) for name in SCHEDULES]
    slack = " and ".join(map(str, update_slack(jobs[0].shape)))
    title = f"pairs that 2BW leaves to stages 0 and 1: {slack}"
    table = Table("schedule", "sum", "simulated step", "measured step", "difference", title=title)
    with TemporaryDirectory() as name:
        run_ranks(run_all, jobs, Path(name), ranks=DEPTH * WIDTH, timeout_seconds=300)
        for job in jobs:
            for pairs in PAIRS:
                folder = Path(name) / f"{job.schedule}_{pairs}"
                each = job.microbatches_per_update
                measured = read_measured_timeline(folder, job.schedule, each).step_seconds
                predicted = predicted_seconds(job, pairs)
                table.add_row(
                    job.schedule,
                    f"{pairs} pairs, {format_seconds(pairs * PAIR_SECONDS)}",
                    format_seconds(predicted),
                    format_seconds(measured),
                    f"{measured / predicted - 1:+.1%}",
                )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
