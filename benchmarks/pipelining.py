"""GPipe, 1F1B and interleaved 1F1B here and in torch.distributed.pipelining, on the same stages.

Usage: python benchmarks/pipelining.py [speed] [memory]; both if none is given.

Both run in turn on the same ranks, in one run, and of each the fastest step counts: what else a
machine does makes steps slower and none faster. Four ranks sleep
instead of computing, since that is honest on fewer cores; two ranks do either. The stages of a
rank together take the time of the first column for a microbatch, a third of it forward. Ours knows
the norm of the gradient over all stages before each update; torch's is measured without and with.
"""

import gc
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from sleeping import SleepingGradient
from torch import Tensor, nn

from diaulos.models.graph import Edge, Layer, LayerGraph, Option
from diaulos.models.layers import LayeredModel, LayerSpec
from diaulos.planning.plan import Plan, Stage
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.groups import Groups, make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.units import format_bytes, format_seconds

WIDTH = 256
CLIP_NORM = 1.0
CHUNKS = 2
"""Blocks of a rank, each a stage of its own where the schedule has several."""
ROUNDS = 4
STEPS = 6
"""Of a round; the first does not count."""
MICROBATCH_SECONDS = (0.001, 0.005, 0.020)
COMPUTING_ROWS = (8, 64, 256)
MEMORY_MICROBATCHES, MEMORY_ROWS = 64, 1024
OURS = ("gpipe", "1f1b", "interleaved")


class ComputingBlock(nn.Module):
    """A network as of a transformer's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """The input, and what the network makes of it."""
        return hidden + self.layers(hidden)


class SleepingBlock(nn.Module):
    """A layer with one weight that takes its time in each direction."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        """The input, and the weight added."""
        if not self.seconds:
            return hidden + self.weight
        time.sleep(self.seconds / 3)
        return SleepingGradient.apply(hidden + self.weight, self.seconds * 2 / 3)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is run, by whichever runtime."""

    name: str
    ranks: int
    microbatches: int
    rows: int
    build: Callable[[], nn.Module]
    """Of a block."""

    def example(self, size: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of so many samples, of which nothing depends."""
        shape = (size, self.rows, WIDTH)
        return torch.ones(shape), torch.zeros(shape)

    def data(self, _batch: int, _microbatch: int) -> tuple[Tensor, Tensor]:
        """The same for all microbatches."""
        return self.example(1)


def summed_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Something to minimise."""
    return (outputs - targets).sum()


def make_job(workload: Workload, schedule: str, steps: int) -> TrainingJob:
    """A workload under a schedule of ours."""
    blocks = range(workload.ranks * CHUNKS)
    chunks = CHUNKS if schedule == "interleaved" else 1
    each = CHUNKS // chunks
    option = Option(name="plain", seconds=1, parameter_bytes=1, activation_bytes=1)
    return TrainingJob(
        model=LayeredModel(
            layers=tuple(LayerSpec(name=f"block_{i}", build=workload.build) for i in blocks),
            loss=summed_loss,
            example=workload.example,
            tokens_per_sample=1,
        ),
        graph=LayerGraph(
            layers=tuple(Layer(id=i, name=f"block_{i}", options=(option,)) for i in blocks),
            edges=tuple(Edge(source=i, target=i + 1, bytes=1) for i in blocks[:-1]),
        ),
        plan=Plan(
            stages=tuple(
                Stage(
                    layers=tuple(blocks[first : first + each]),
                    data_parallel=1,
                    tensor_parallel=1,
                    options=dict.fromkeys(blocks[first : first + each], "plain"),
                )
                for first in blocks[::each]
            ),
            microbatches=workload.microbatches,
        ),
        schedule=schedule,
        chunks=chunks,
        data=workload.data,
        microbatch_size=1,
        batches=steps,
        make_optimizer=partial(torch.optim.SGD, lr=0.0),
        clip_norm=CLIP_NORM,
    )


def run_ours(workload: Workload, schedule: str, groups: Groups, turn: int) -> list[float]:
    """The seconds of each step but the first."""
    job = make_job(workload, schedule, STEPS)
    store = dist.PrefixStore(f"{workload.name}/{schedule}/{turn}", groups.store)
    trained = train_rank(job, replace(groups, shape=job.shape, store=store))
    return [step.step_seconds for step in trained.steps[1:]]


def run_torch(
    workload: Workload, schedule: str, groups: Groups, *, clips: bool = False
) -> list[float]:
    """The seconds of each step but the first, of torch's own runtime.

    Whether it clips the gradient by its norm over all stages, as ours does, is for the caller.
    """
    step, parameters = torch_step(workload, schedule, groups.rank)
    optimizer = torch.optim.SGD(parameters, lr=0.0)
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        if clips:
            _clip(parameters)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def _clip(parameters: list[nn.Parameter]) -> None:
    gradients = [weight.grad for weight in parameters if weight.grad is not None]
    square = torch.nn.utils.get_total_norm(gradients).square()
    dist.all_reduce(square)
    torch.nn.utils.clip_grads_with_norm_(parameters, CLIP_NORM, square.sqrt())


def torch_step(
    workload: Workload, schedule: str, rank: int
) -> tuple[Callable[[], object], list[nn.Parameter]]:
    """A step of torch's runtime on a rank, without an update, and the rank's parameters."""
    from torch.distributed.pipelining import (  # noqa: PLC0415 - takes a second
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        ScheduleInterleaved1F1B,
    )

    chunks = CHUNKS if schedule == "interleaved" else 1
    sample, _ = workload.example(1)
    stages = []
    for chunk in range(chunks):
        index = chunk * workload.ranks + rank
        blocks = nn.Sequential(*(workload.build() for _ in range(CHUNKS // chunks)))
        stage = PipelineStage(
            blocks,
            index,
            workload.ranks * chunks,
            torch.device("cpu"),
            input_args=(sample.clone().requires_grad_(index > 0),),
            output_args=(sample.clone().requires_grad_(),),
        )
        stages.append(stage)
    if schedule == "interleaved":
        runtime = ScheduleInterleaved1F1B(
            stages, workload.microbatches, loss_fn=summed_loss, scale_grads=False
        )
    else:
        kind = ScheduleGPipe if schedule == "gpipe" else Schedule1F1B
        runtime = kind(stages[0], workload.microbatches, loss_fn=summed_loss, scale_grads=False)
    inputs, targets = workload.example(workload.microbatches)
    given = (inputs,) if rank == 0 else ()
    named = {"target": targets, "losses": []} if rank == workload.ranks - 1 else {}

    def step() -> None:
        if "losses" in named:
            named["losses"].clear()
        runtime.step(*given, **named, return_outputs=False)

    return step, [weight for stage in stages for weight in stage.submod.parameters()]


def run_alone(workload: Workload, groups: Groups) -> list[float]:
    """The seconds of a batch's forwards and backwards on a rank, without a pipeline."""
    blocks = nn.Sequential(*(workload.build() for _ in range(CHUNKS)))
    inputs, targets = workload.example(1)
    seconds = []
    for _ in range(STEPS):
        dist.barrier(group=groups.world)
        start = time.perf_counter()
        for _ in range(workload.microbatches):
            entering = inputs.clone().requires_grad_()
            summed_loss(blocks(entering), targets).backward()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


Turns = dict[str, list[float]]
"""By runtime and schedule, the steps of all turns."""


def speed_of(rank: LocalRank, workloads: list[Workload]) -> list[Turns]:
    """All workloads of as many ranks, each run in turn."""
    store = join_group(rank)
    groups = make_groups(make_job(workloads[0], "1f1b", 1).shape, store, torch.device("cpu"))
    return [_speed(workload, groups) for workload in workloads]


def _speed(workload: Workload, groups: Groups) -> Turns:
    turns: defaultdict[str, list[float]] = defaultdict(list)
    for turn in range(ROUNDS):
        for schedule in OURS:
            turns[f"ours {schedule}"] += run_ours(workload, schedule, groups, turn)
            turns[f"torch {schedule}"] += run_torch(workload, schedule, groups)
            turns[f"clipping {schedule}"] += run_torch(workload, schedule, groups, clips=True)
        turns["ours 2bw"] += run_ours(workload, "2bw", groups, turn)
        turns["alone"] += run_alone(workload, groups)
    return dict(turns)


def fastest(by_rank: list[Turns]) -> dict[str, float]:
    """The fastest step of each, as long as it took on the slowest rank."""
    return {
        name: min(max(each) for each in zip(*(turns[name] for turns in by_rank), strict=True))
        for name in by_rank[0]
    }


def speed_workloads(ranks: int) -> Iterator[Workload]:
    """Those that are compared on so many ranks."""
    for seconds in MICROBATCH_SECONDS:
        yield Workload(
            name=f"{ranks} ranks sleeping {format_seconds(seconds)}",
            ranks=ranks,
            microbatches=4 * ranks,
            rows=128,
            build=partial(SleepingBlock, seconds / CHUNKS),
        )
    for rows in COMPUTING_ROWS if ranks <= (os.cpu_count() or 1) else ():
        yield Workload(
            name=f"{ranks} ranks computing, {rows} rows",
            ranks=ranks,
            microbatches=4 * ranks,
            rows=rows,
            build=ComputingBlock,
        )


def print_speed(console: Console) -> None:
    """Steps of both, and of 2BW over the work alone."""
    table = Table(
        "stages",
        "schedule",
        "torch",
        "torch, clipping",
        "ours, clipping",
        "ours / torch",
        "ours / torch, clipping",
        "ours / work alone",
    )
    for ranks in (2, 4):
        workloads = list(speed_workloads(ranks))
        by_rank = run_ranks(speed_of, workloads, ranks=ranks, timeout_seconds=1500)
        for workload, results in zip(workloads, zip(*by_rank, strict=True), strict=True):
            steps = fastest(list(results))
            alone = steps["alone"]
            microbatch = format_seconds(alone / workload.microbatches)
            for schedule in OURS:
                ours, theirs = steps[f"ours {schedule}"], steps[f"torch {schedule}"]
                clipping = steps[f"clipping {schedule}"]
                table.add_row(
                    f"{workload.name}: {microbatch} a microbatch",
                    schedule,
                    format_seconds(theirs),
                    format_seconds(clipping),
                    format_seconds(ours),
                    f"{ours / theirs:.3f}",
                    f"{ours / clipping:.3f}",
                    f"{ours / alone:.3f}",
                )
            ours = steps["ours 2bw"]
            table.add_row(
                "", "2bw", "-", "-", format_seconds(ours), "-", "-", f"{ours / alone:.3f}"
            )
    console.print(table)


def memory_of(rank: LocalRank, workload: Workload, runtime: str, schedule: str) -> float:
    """The bytes that a rank holds at most beyond those that it held before."""
    store = join_group(rank)
    groups = make_groups(make_job(workload, "1f1b", 1).shape, store, torch.device("cpu"))
    small = replace(workload, rows=1, microbatches=2 * workload.ranks, name="warm-up")
    for each in (small, workload):  # first what is loaded and allocated once
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _memory_bytes("VmRSS")
        if runtime == "ours":
            run_ours(each, schedule, groups, 0)
        else:
            run_torch(each, schedule, groups)
    return _memory_bytes("VmHWM") - before


def _memory_bytes(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return float(line.split()[1]) * 1024
    raise KeyError(name)


def print_memory(console: Console) -> None:
    """What the fullest rank holds at most, each in processes of its own."""
    title = f"{MEMORY_MICROBATCHES} microbatches of {format_bytes(4.0 * WIDTH * MEMORY_ROWS)}"
    table = Table("ranks", "schedule", "torch", "ours", "ours / torch", title=title)
    for ranks in (2, 4):
        workload = Workload(
            name=f"memory on {ranks}",
            ranks=ranks,
            microbatches=MEMORY_MICROBATCHES,
            rows=MEMORY_ROWS,
            build=partial(SleepingBlock, 0.0),
        )
        for schedule in OURS:
            peaks = [
                max(run_ranks(memory_of, workload, runtime, schedule, ranks=ranks))
                for runtime in ("torch", "ours")
            ]
            cells = [*map(format_bytes, peaks), f"{peaks[1] / peaks[0]:.2f}"]
            table.add_row(str(ranks), schedule, *cells)
    console.print(table)


def main() -> None:
    """Print the tables that are asked for."""
    asked = sys.argv[1:] or ["speed", "memory"]
    console = Console(width=150)
    # What is freed goes back at once, so that what a process holds is what it needs.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", "65536")
    if "speed" in asked:
        print_speed(console)
    if "memory" in asked:
        print_memory(console)


if __name__ == "__main__":
    main()
