"""All-reduces between the ranks of this machine, measured and predicted."""

import time
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from diaulos.clusters.cluster import Link
from diaulos.pricing.devices.collectives import RankGroup, all_reduce_seconds
from diaulos.pricing.processes import LocalRank, join_group, run_ranks

_SIZES_BYTES = (2**12, 2**20, 2**24)
_WARM_UP, _REPETITIONS = 3, 15


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAllReduce:
    """An all-reduce of `size_bytes` on each rank."""

    size_bytes: int
    measured_seconds: float
    predicted_seconds: float


def measure_all_reduces(
    processes: int, link: Link, *, timeout_seconds: float
) -> tuple[MeasuredAllReduce, ...]:
    """Of small, middling and large tensors over gloo; nothing where there is one process."""
    if processes == 1:
        return ()
    found = run_ranks(_seconds_by_size, ranks=processes, timeout_seconds=timeout_seconds)
    ranks = RankGroup(members=processes, members_per_node=processes, inside=link, between=link)
    return tuple(
        MeasuredAllReduce(
            size_bytes=size,
            measured_seconds=max(seconds[index] for seconds in found),
            predicted_seconds=all_reduce_seconds(ranks, size),
        )
        for index, size in enumerate(_SIZES_BYTES)
    )


def _seconds_by_size(rank: LocalRank) -> list[float]:
    """The median of each size on one rank."""
    join_group(rank)
    return [_all_reduce_seconds(size) for size in _SIZES_BYTES]


def _all_reduce_seconds(size_bytes: int) -> float:
    tensor = torch.zeros(size_bytes // 4)
    laps = []
    for _ in range(_WARM_UP + _REPETITIONS):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        laps.append(time.perf_counter() - start)
    return median(laps[_WARM_UP:])
