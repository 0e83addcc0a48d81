"""The machine as a cluster that prices follow from: its devices and their links, measured."""

import os
from dataclasses import dataclass

import torch

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.clusters.device import DType, Tile
from diaulos.errors import InputError
from diaulos.pricing.calibration.collectives import MeasuredAllReduce, measure_all_reduces
from diaulos.pricing.calibration.fit import Figures, FittedDevice, fit_device
from diaulos.pricing.calibration.gpu_link import measure_gpu_link
from diaulos.pricing.calibration.measured import Measurements, mean_measurements
from diaulos.pricing.calibration.probes import measure
from diaulos.pricing.links import measure_link
from diaulos.pricing.measure import device_name
from diaulos.pricing.processes import LocalRank, join_group, run_ranks

_CPU_TILE = Tile(rows=16, columns=16)
"""Of the microkernels of matrix libraries; what is left over beside them is computed apart."""
_TILED_AS = "H100-80GB"
"""Whose tiles other GPUs are taken to have."""
_MESSAGE_BYTES = 2**20
"""Of what links are measured with; activations and gradients are about as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured, and how near the model comes to it."""

    fitted: FittedDevice
    cluster: Cluster
    all_reduces: tuple[MeasuredAllReduce, ...]
    """Between the ranks of a CPU, with what the link's figures predict."""
    threads: int
    """Of each process."""


def calibrate_cpu(
    *,
    processes: int,
    threads: int = 1,
    memory_bytes: float | None = None,
    timeout_seconds: float = 900.0,
) -> Calibration:
    """The machine's CPU as `processes` devices of `threads` threads each; takes about a minute.

    All processes measure at the same time, since they share caches and memory. With one thread
    each, what other programs take of the cores meanwhile does not count. Without `memory_bytes`
    each device has its share of the machine's memory.
    """
    for name, count in (("processes", processes), ("threads", threads)):
        if count < 1:
            raise InputError(f"{name} is {count}", "it must be at least 1")
    if memory_bytes is None:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / processes
    measured = run_ranks(
        _measure_cpu, threads, ranks=processes, threads=threads, timeout_seconds=timeout_seconds
    )
    each = f"{threads} thread{'s' * (threads > 1)} in each of {processes} processes"
    fitted = fit_device(
        Figures(
            name=f"cpu-{threads}-thread{'s' * (threads > 1)}",
            memory_bytes=memory_bytes,
            units=1,
            tiles=(_CPU_TILE,),
            how=_how(torch.device("cpu"), each),
        ),
        mean_measurements(measured),
    )
    found = measure_link(message_bytes=_MESSAGE_BYTES)
    link = Link(
        bandwidth_bytes_per_second=found.bandwidth_bytes_per_second,
        latency_seconds=found.latency_seconds,
    )
    return Calibration(
        fitted=fitted,
        cluster=_cluster("this-cpu", fitted, processes, link),
        all_reduces=measure_all_reduces(processes, link, timeout_seconds=timeout_seconds),
        threads=threads,
    )


def calibrate_gpu(*, memory_bytes: float | None = None) -> Calibration:
    """The machine's GPUs, described by the first of them and copies between the first two."""
    if not torch.cuda.is_available():
        raise InputError("there is no CUDA device here", "a GPU is measured where it is")
    device = torch.device("cuda", 0)
    properties = torch.cuda.get_device_properties(device)
    fitted = fit_device(
        Figures(
            name=properties.name.replace(" ", "-"),
            memory_bytes=memory_bytes or float(properties.total_memory),
            units=properties.multi_processor_count,
            tiles=known_device(_TILED_AS).device.tiles,
            how=_how(device, "alone"),
        ),
        measure(device, dtypes=(DType.BF16, DType.FP16, DType.FP32), threads=1),
    )
    count = torch.cuda.device_count()
    link = measure_gpu_link(_MESSAGE_BYTES)
    return Calibration(
        fitted=fitted,
        cluster=_cluster("this-gpu", fitted, count, link),
        all_reduces=(),
        threads=1,
    )


def _measure_cpu(rank: LocalRank, threads: int) -> Measurements:
    """One process's share of a calibration."""
    join_group(rank)
    return measure(torch.device("cpu"), dtypes=(DType.FP32, DType.BF16), threads=threads)


def _cluster(name: str, fitted: FittedDevice, devices: int, link: Link) -> Cluster:
    group = DeviceGroup(
        name="devices",
        nodes=1,
        devices_per_node=devices,
        memory_bytes=fitted.device.memory_bytes,
        link=link,
        device=fitted.device,
    )
    return Cluster(groups=(group,), link=link, name=name)


def _how(device: torch.device, each: str) -> str:
    """What the sources of a measured device say."""
    return f"measured on {device_name(device)} with torch {torch.__version__}, {each}"
