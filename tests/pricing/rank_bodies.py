"""What ranks run in the tests of processes; a module of its own, since ranks import it."""

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.pricing.processes import LocalRank, join_group


def summed_ranks(rank: LocalRank, extra: Tensor) -> tuple[Tensor, int, int]:
    join_group(rank)
    total = torch.tensor([float(rank.rank)]) + extra
    dist.all_reduce(total)
    return total, os.getpid(), torch.get_num_threads()


def second_raises(rank: LocalRank) -> None:
    join_group(rank)
    if rank.rank == 1:
        raise ValueError("the culprit's own words")
    dist.barrier()


def second_dies(rank: LocalRank) -> None:
    join_group(rank)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def second_exits(rank: LocalRank) -> None:
    if rank.rank == 1:
        os._exit(3)
    time.sleep(60)


def second_sleeps_forever(rank: LocalRank, folder: str) -> None:
    (Path(folder) / str(rank.rank)).write_text(str(os.getpid()), encoding="utf-8")
    if rank.rank == 1:
        time.sleep(60)


def unpicklable(_: LocalRank) -> object:
    return lambda: None
