"""Each schedule on processes whose stages sleep, beside what the simulator says.

Usage: python benchmarks/sleeping.py [ranks ...]; 4 and 8 if none are given.

Sleeping takes no core, so that many ranks are honest on a machine with fewer cores. What is
compared is a whole run, from the first forward to the last backward.
"""

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from diaulos.models.graph import Edge, Layer, LayerGraph, Option
from diaulos.models.layers import LayeredModel, LayerSpec
from diaulos.planning.plan import Plan, Stage
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.simulate import Simulator
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import read_measured_timeline
from diaulos.units import format_seconds

RANKS = (4, 8)
BATCHES = 3
FORWARD_SECONDS, INPUT_SECONDS, WEIGHT_SECONDS = 0.100, 0.110, 0.090
"""Of a microbatch on all stages of a rank. What the executor itself takes of a core, a millisecond
or so a computation, is on fewer cores than ranks taken by one after another."""


class SleepingGradient(torch.autograd.Function):
    """Its input, whose gradient takes some time."""

    @staticmethod
    def forward(context: torch.autograd.function.FunctionCtx, x: Tensor, seconds: float) -> Tensor:
        context.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(
        context: torch.autograd.function.FunctionCtx, gradient: Tensor
    ) -> tuple[Tensor, None]:
        time.sleep(context.seconds)
        return gradient, None


class Sleeper(nn.Module):
    """A layer with one weight that takes its time in each direction."""

    def __init__(self, costs: StageCosts) -> None:
        super().__init__()
        self.costs = costs
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        """The input, and the weight added."""
        time.sleep(self.costs.forward_seconds)
        passed = SleepingGradient.apply(hidden, self.costs.input_seconds)
        return passed + SleepingGradient.apply(self.weight, self.costs.weight_seconds)


def stage_costs(ranks: int, stages: int) -> list[StageCosts]:
    """Of each stage; the first gives no gradient of an input, and takes as long for its weights."""
    share = ranks / stages
    backward = share * (INPUT_SECONDS + WEIGHT_SECONDS)
    return [
        StageCosts(
            forward_seconds=share * FORWARD_SECONDS,
            backward_seconds=backward,
            weight_backward_seconds=share * WEIGHT_SECONDS if stage else backward,
        )
        for stage in range(stages)
    ]


def numbers(size: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, of which nothing depends."""
    return torch.ones(size, 8), torch.ones(size, 8)


def data(_batch: int, _microbatch: int) -> tuple[Tensor, Tensor]:
    """The same for all microbatches."""
    return numbers(1)


def summed_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Something to minimise."""
    return (outputs - targets).sum()


def make_job(schedule: str, ranks: int) -> TrainingJob:
    """One sleeping layer a stage, two stages a rank where the schedule has several.

    A batch has two microbatches for each rank.
    """
    chunks = 1 if GENERATORS[schedule].chunks == 1 else 2
    costs = stage_costs(ranks, ranks * chunks)
    model = LayeredModel(
        layers=tuple(
            LayerSpec(name=f"layer_{stage}", build=partial(Sleeper, cost))
            for stage, cost in enumerate(costs)
        ),
        loss=summed_loss,
        example=numbers,
        tokens_per_sample=1,
    )
    option = Option(name="plain", seconds=1, parameter_bytes=1, activation_bytes=1)
    layers = range(len(costs))
    return TrainingJob(
        model=model,
        graph=LayerGraph(
            layers=tuple(Layer(id=i, name=f"layer_{i}", options=(option,)) for i in layers),
            edges=tuple(Edge(source=i, target=i + 1, bytes=1) for i in layers[:-1]),
        ),
        plan=Plan(
            stages=tuple(
                Stage(layers=(i,), data_parallel=1, tensor_parallel=1, options={i: "plain"})
                for i in layers
            ),
            microbatches=2 * ranks,
        ),
        schedule=schedule,
        chunks=chunks,
        data=data,
        microbatch_size=1,
        batches=BATCHES,
        make_optimizer=partial(torch.optim.SGD, lr=0.0),
    )


def run_all(rank: LocalRank, jobs: list[TrainingJob], folder: Path) -> None:
    """All jobs on this rank, one after another."""
    store = join_group(rank)
    groups = make_groups(jobs[0].shape, store, torch.device("cpu"))
    for job in jobs:
        own = replace(groups, shape=job.shape, store=dist.PrefixStore(job.schedule, store))
        train_rank(job, own, folder=folder / job.schedule)


def predicted_seconds(job: TrainingJob) -> float:
    """What the simulator says of the whole run."""
    schedule = generate(job.schedule, job.shape, job.batches)
    simulator = Simulator(schedule, check(schedule))
    return simulator.makespan_seconds(stage_costs(job.shape.ranks, job.shape.stages), Link())


def compared(ranks: int) -> Table:
    """All schedules on so many ranks."""
    jobs = [make_job(name, ranks) for name in GENERATORS]
    table = Table(
        "schedule", "simulated batch", "measured batch", "difference", title=f"{ranks} ranks"
    )
    with TemporaryDirectory() as name:
        run_ranks(run_all, jobs, Path(name), ranks=ranks, timeout_seconds=900)
        for job in jobs:
            timeline = read_measured_timeline(
                Path(name) / job.schedule, job.schedule, job.microbatches_per_update
            )
            measured, predicted = timeline.makespan_seconds, predicted_seconds(job)
            table.add_row(
                job.schedule,
                format_seconds(predicted / BATCHES),
                format_seconds(measured / BATCHES),
                f"{measured / predicted - 1:+.1%}",
            )
    return table


def main() -> None:
    """Print a table for each number of ranks."""
    for ranks in map(int, sys.argv[1:]) if sys.argv[1:] else RANKS:
        Console(width=100).print(compared(ranks))


if __name__ == "__main__":
    main()
