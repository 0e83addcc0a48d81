"""The measured link between two ranks of this machine, and the cluster it makes."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
import torch.distributed as dist

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.pricing.processes import LocalRank, join_group, run_ranks

_SMALL_BYTES = 4
_WARM_UP = 5
_LEAST_SHARE_OF_TRANSFER = 0.1
"""Of the time of a message; where the latency is nearly all, noise must not make it negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """One way between two ranks: a message takes latency + bytes / bandwidth."""

    latency_seconds: float
    bandwidth_bytes_per_second: float


def measure_link(
    *, message_bytes: int, repetitions: int = 50, timeout_seconds: float = 60.0
) -> MeasuredLink:
    """Latency and bandwidth between two processes of this machine over gloo.

    From round trips of messages of 4 bytes and of `message_bytes`; give the size that crosses
    the stage boundaries, since the rate depends on it.
    """
    if message_bytes <= _SMALL_BYTES:
        raise InputError(f"message_bytes is {message_bytes}", f"it must be above {_SMALL_BYTES}")
    if repetitions < 1:
        raise InputError(f"repetitions is {repetitions}", "it must be at least 1")
    (small, large), _ = run_ranks(
        _one_way_seconds, message_bytes, repetitions, ranks=2, timeout_seconds=timeout_seconds
    )
    transfer = max(large - small, _LEAST_SHARE_OF_TRANSFER * large)
    return MeasuredLink(latency_seconds=small, bandwidth_bytes_per_second=message_bytes / transfer)


def local_cluster(
    *, processes: int, memory_bytes: float | None = None, message_bytes: int = 2**20
) -> Cluster:
    """A cluster of `processes` equal devices that are this machine, its link measured.

    Without `memory_bytes`, each device has its share of the machine's memory.
    """
    if processes < 1:
        raise InputError(f"processes is {processes}", "it must be at least 1")
    if memory_bytes is None:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / processes
    link = measure_link(message_bytes=message_bytes)
    return Cluster.flat(
        name="local",
        devices=processes,
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
        latency_seconds=link.latency_seconds,
    )


def _one_way_seconds(rank: LocalRank, message_bytes: int, repetitions: int) -> tuple[float, float]:
    """Seconds of a small and of a large message, half a round trip each."""
    join_group(rank)
    small, large = (
        _median_seconds(_RoundTrip(rank.rank, size), repetitions) / 2
        for size in (_SMALL_BYTES, message_bytes)
    )
    return small, large


class _RoundTrip:
    """A message from rank 0 to rank 1 and back, each received into a buffer of its own."""

    def __init__(self, rank: int, size_bytes: int) -> None:
        self._starts = rank == 0
        self._peer = 1 - rank
        self._sent = torch.zeros(size_bytes, dtype=torch.uint8)
        self._received = torch.zeros(size_bytes, dtype=torch.uint8)

    def __call__(self) -> None:
        if self._starts:
            self._send()
            self._receive()
        else:
            self._receive()
            self._send()

    def _send(self) -> None:
        work = dist.isend(self._sent, self._peer)
        assert work is not None
        work.wait()

    def _receive(self) -> None:
        work = dist.irecv(self._received, self._peer)
        assert work is not None
        work.wait()


def _median_seconds(run: Callable[[], None], repetitions: int) -> float:
    seconds = []
    for _ in range(_WARM_UP + repetitions):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return median(seconds[_WARM_UP:])
