"""What the executor itself takes of a processor, with stages that compute nothing.

Usage: python benchmarks/overhead.py

Time of the processor, all threads of a rank together, so that what else runs on the machine does
not count. On one rank there are no messages; on two those of the slower rank are in it.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
import torch.distributed as dist
from pipelining import (
    CHUNKS,
    SleepingBlock,
    Workload,
    make_job,
    summed_loss,
    torch_step,
)
from rich.console import Console
from rich.table import Table
from torch import nn

from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.groups import Groups, make_groups
from diaulos.training.rank import train_rank
from diaulos.training.records import StepRecord

MICROBATCHES, STEPS, ROUNDS = 64, 6, 5
SCHEDULES = ("gpipe", "1f1b", "interleaved")


def per_microbatch(seconds: list[float]) -> float:
    """The median step but for the first, for each of its microbatches."""
    return statistics.median(seconds[1:]) / MICROBATCHES


def autograd_alone(workload: Workload) -> float:
    """The forwards and backwards themselves."""
    blocks = nn.Sequential(*(workload.build() for _ in range(CHUNKS)))
    inputs, targets = workload.example(1)
    seconds = []
    for _ in range(STEPS):
        start = time.process_time()
        for _ in range(MICROBATCHES):
            summed_loss(blocks(inputs), targets).backward()
        seconds.append(time.process_time() - start)
    return per_microbatch(seconds)


def of_torch(workload: Workload, schedule: str, groups: Groups) -> float:
    """torch.distributed.pipelining, without an optimizer."""
    step, _ = torch_step(workload, schedule, groups.rank)
    seconds = []
    for _ in range(STEPS):
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)
    return per_microbatch(seconds)


def of_ours(workload: Workload, schedule: str, groups: Groups, name: str) -> float:
    """The executor, with updates, checks and records."""
    job = make_job(workload, schedule, STEPS)
    ends: list[float] = []

    def observe(_: StepRecord) -> None:
        ends.append(time.process_time())

    own = replace(groups, shape=job.shape, store=dist.PrefixStore(name, groups.store))
    train_rank(job, own, observe_step=observe)
    return per_microbatch([end - start for start, end in pairwise(ends)])


def measured(rank: LocalRank, workload: Workload) -> dict[str, float]:
    """The median over turns, in seconds a microbatch."""
    store = join_group(rank)
    groups = make_groups(make_job(workload, "1f1b", 1).shape, store, torch.device("cpu"))
    ways: dict[str, Callable[[int], float]] = {"autograd alone": lambda _: autograd_alone(workload)}
    for schedule in SCHEDULES:
        torchs = partial(of_torch, workload, schedule, groups)
        ours = partial(of_ours, workload, schedule, groups)
        ways[f"torch, {schedule}"] = lambda _, run=torchs: run()
        ways[f"ours, {schedule}"] = lambda turn, run=ours, s=schedule: run(f"{s}/{turn}")
    turns = [{way: run(turn) for way, run in ways.items()} for turn in range(ROUNDS)]
    return {way: statistics.median(turn[way] for turn in turns) for way in ways}


def main() -> None:
    """Print the table."""
    table = Table("ranks", "runtime", "processor time a microbatch", "beyond autograd alone")
    for ranks in (1, 2):
        workload = Workload(
            name="empty",
            ranks=ranks,
            microbatches=MICROBATCHES,
            rows=1,
            build=partial(SleepingBlock, 0.0),
        )
        by_rank = run_ranks(measured, workload, ranks=ranks, timeout_seconds=600)
        alone = max(of_rank["autograd alone"] for of_rank in by_rank)
        for way in by_rank[0]:
            seconds = max(of_rank[way] for of_rank in by_rank)
            table.add_row(
                str(ranks), way, f"{seconds * 1e6:.0f} us", f"{(seconds - alone) * 1e6:.0f} us"
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
