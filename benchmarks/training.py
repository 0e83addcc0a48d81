"""How fast 2BW and 1F1B train on two processes, beside the computations of the slower stage alone.

Usage: python benchmarks/training.py

One run after another on the same ranks, in turn, so that all meet the same machine. The slower
stage's computations are those of a step as measured in the 2BW runs: no schedule can be faster.
"""

import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor

from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.graph import Edge, Layer, LayerGraph, Option
from diaulos.planning.plan import Plan, Stage
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.schedules.timeline import Timeline
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import read_measured_timeline
from diaulos.units import format_seconds

CONFIG = GPTConfig(layers=6, width=192, heads=6, sequence_length=128)
MICROBATCH_SIZE = 2
BATCHES = 20
ROUNDS = 3
SCHEDULES = ("2bw", "1f1b", "gpipe")


def tokens(batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
    """Random tokens; what they are does not matter for speed."""
    generator = torch.Generator().manual_seed(1000 * batch + microbatch)
    shape = (MICROBATCH_SIZE, CONFIG.sequence_length + 1)
    drawn = torch.randint(CONFIG.vocabulary, shape, generator=generator)
    return drawn[:, :-1], drawn[:, 1:]


def make_job(schedule: str, microbatches: int) -> TrainingJob:
    """Two stages of equal numbers of layers."""
    model = gpt(CONFIG)
    count = len(model.layers)
    option = Option(name="plain", seconds=1, parameter_bytes=1, activation_bytes=1)
    stages = tuple(
        Stage(
            layers=tuple(layers),
            data_parallel=1,
            tensor_parallel=1,
            options=dict.fromkeys(layers, "plain"),
        )
        for layers in (range(count // 2), range(count // 2, count))
    )
    return TrainingJob(
        model=model,
        graph=LayerGraph(
            layers=tuple(
                Layer(id=index, name=spec.name, options=(option,))
                for index, spec in enumerate(model.layers)
            ),
            edges=tuple(Edge(source=i, target=i + 1, bytes=1) for i in range(count - 1)),
        ),
        plan=Plan(stages=stages, microbatches=microbatches),
        schedule=schedule,
        data=tokens,
        microbatch_size=MICROBATCH_SIZE,
        batches=BATCHES,
        make_optimizer=partial(torch.optim.AdamW, lr=1e-3, fused=True),
        clip_norm=1.0,
    )


def run_all(rank: LocalRank, jobs: list[TrainingJob], folder: Path) -> None:
    """All jobs on this rank, one after another."""
    store = join_group(rank)
    groups = make_groups(jobs[0].shape, store, torch.device("cpu"))
    for index, job in enumerate(jobs):
        own = replace(groups, store=dist.PrefixStore(str(index), store))
        train_rank(job, own, folder=folder / str(index))


def slower_stage_seconds(timeline: Timeline) -> float:
    """Computations and update of a batch on the rank that has most of them."""
    return max(timeline.busy_seconds(rank) for rank in range(timeline.ranks)) / BATCHES


def main() -> None:
    """Print the table."""
    table = Table("microbatches", "schedule", "step", "over the slower stage's work", "formula")
    for microbatches in (2, 4, 8):
        jobs = [make_job(name, microbatches) for _ in range(ROUNDS) for name in SCHEDULES]
        with TemporaryDirectory() as name:
            run_ranks(run_all, jobs, Path(name), ranks=2, timeout_seconds=550)
            timelines = [
                read_measured_timeline(Path(name) / str(index), job.schedule, microbatches)
                for index, job in enumerate(jobs)
            ]
        own = [timeline for timeline in timelines if timeline.name == "2bw"]
        work = statistics.median(slower_stage_seconds(timeline) for timeline in own)
        for schedule in SCHEDULES:
            steps = [t.step_seconds for t in timelines if t.name == schedule]
            formula = 1.0 if schedule == "2bw" else (microbatches + 1) / microbatches
            step = statistics.median(steps)
            table.add_row(
                str(microbatches),
                schedule,
                format_seconds(step),
                f"{step / work:.3f}",
                f"{formula:.3f}",
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
