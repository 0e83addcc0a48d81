"""The measured prices of a model's layers, on the device and beside the neighbours they will have.

Every process runs the whole model as a rank runs its stage: microbatch after microbatch forward
and backward, layer by layer, gradients added up, then an update. So each layer finds the caches
as training leaves them, and processes that share a machine take memory bandwidth from each other.
"""

import platform
from dataclasses import dataclass
from statistics import fmean

import torch

from diaulos._version import __version__
from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.models.layers import LayeredModel
from diaulos.pricing.chain import Chain, OptimizerFactory, adamw
from diaulos.pricing.dataflow import tensor_edges
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.pricing.sizes import LayerSizes, measure_sizes
from diaulos.pricing.times import MICROBATCHES_PER_BATCH, ChainTimes, measure_times

PLAIN, RECOMPUTE = "plain", "recompute"
"""Names of the options of every measured layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What every measuring process does."""

    model: LayeredModel
    microbatch_size: int
    optimizer: OptimizerFactory
    repetitions: int
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What one process found."""

    sizes: list[LayerSizes]
    times: ChainTimes
    edges: dict[tuple[int, int], int]
    device_name: str
    optimizer_name: str


def profile(
    model: LayeredModel,
    *,
    microbatch_size: int,
    processes: int = 1,
    optimizer: OptimizerFactory = adamw,
    repetitions: int = 3,
    device: str = "cpu",
    timeout_seconds: float = 600.0,
) -> LayerGraph:
    """The model's layers, with the prices measured for one microbatch.

    They are a chain, or have an edge from each layer to those that read what it makes.

    Each layer has the options `plain` and `recompute`; the last one's price includes the loss.
    Times are means over `repetitions` batches of 4 microbatches in each of `processes`
    processes that measure at the same time, one thread each, and the mean over the processes.
    Give as many processes as ranks will share the machine. `provenance` says how far the sum of
    the layers is from the model run as a whole.
    """
    for name, count in (
        ("microbatch_size", microbatch_size),
        ("processes", processes),
        ("repetitions", repetitions),
    ):
        if count < 1:
            raise InputError(f"{name} is {count}", "it must be at least 1")
    work = _Work(
        model=model,
        microbatch_size=microbatch_size,
        optimizer=optimizer,
        repetitions=repetitions,
        device=device,
    )
    measured = run_ranks(_measure, work, ranks=processes, timeout_seconds=timeout_seconds)
    return _graph(work, measured)


def _measure(rank: LocalRank, work: _Work) -> _Measured:
    """One process's share of a profile."""
    join_group(rank)
    chain = Chain(
        work.model,
        microbatch_size=work.microbatch_size,
        optimizer=work.optimizer,
        device=_device_of(rank, work.device),
    )
    return _Measured(
        sizes=measure_sizes(chain),
        times=measure_times(chain, work.repetitions),
        edges=tensor_edges(chain),
        device_name=device_name(chain.device),
        optimizer_name=_optimizer_name(chain),
    )


def _graph(work: _Work, measured: list[_Measured]) -> LayerGraph:
    times = [one.times for one in measured]
    sizes = measured[0].sizes  # the same in all processes
    layers = tuple(
        Layer(id=position, name=spec.name, options=_options(position, sizes[position], times))
        for position, spec in enumerate(work.model.layers)
    )
    edges = tuple(
        Edge(source=source, target=target, bytes=float(size))
        for (source, target), size in measured[0].edges.items()
    )
    return LayerGraph(layers=layers, edges=edges, provenance=_provenance(work, measured))


def _options(position: int, sizes: LayerSizes, times: list[ChainTimes]) -> tuple[Option, Option]:
    update = fmean(time.update_seconds[position] for time in times)
    options = []
    for name in (PLAIN, RECOMPUTE):
        passes = [getattr(time, name) for time in times]
        forward = fmean(one.forward_seconds[position] for one in passes)
        backward = fmean(one.backward_seconds[position] for one in passes)
        size = getattr(sizes, name)
        options.append(
            Option(
                name=name,
                recompute=name == RECOMPUTE,
                seconds=forward + backward,
                forward_seconds=forward,
                update_seconds=update,
                parameter_bytes=float(sizes.parameter_bytes),
                activation_bytes=float(size.activation_bytes),
                fixed_memory=FixedMemory(temporary_bytes=float(size.temporary_bytes)),
            )
        )
    return options[0], options[1]


def _provenance(work: _Work, measured: list[_Measured]) -> dict[str, str]:
    layers = fmean(
        float((one.times.plain.forward_seconds + one.times.plain.backward_seconds).sum())
        for one in measured
    )
    whole = fmean(one.times.whole_model_seconds for one in measured)
    return {
        "source": f"measured by diaulos {__version__}",
        **work.model.settings,
        "microbatch_size": str(work.microbatch_size),
        "optimizer": measured[0].optimizer_name,
        "device": measured[0].device_name,
        "torch": str(torch.__version__),
        "processes": str(len(measured)),
        "threads_per_process": "1",
        "repetitions": f"{work.repetitions} x {MICROBATCHES_PER_BATCH} microbatches",
        "layers_seconds": f"{layers:.6g}",
        "whole_model_seconds": f"{whole:.6g}",
        "layers_over_whole_model": f"{layers / whole:.4f}",
    }


def _device_of(rank: LocalRank, name: str) -> torch.device:
    """The rank's own device: ranks share the CPU, but each has an accelerator to itself."""
    device = torch.device(name)
    if device.type in ("cpu", "mps") or name != device.type:
        return device
    return torch.device(device.type, rank.rank)


def device_name(device: torch.device) -> str:
    """What the machine says of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"cpu ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"
    return device.type


def _optimizer_name(chain: Chain) -> str:
    for optimizer in chain.optimizers:
        if optimizer is not None:
            flags = [flag for flag in ("fused", "foreach") if optimizer.defaults.get(flag)]
            return " ".join([type(optimizer).__name__, *flags])
    return "none"
