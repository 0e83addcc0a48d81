"""How far predicted step times and memory are from measured ones on this machine.

Usage: python benchmarks/calibrated.py [CLUSTER.toml]

GPTs of different shapes, none of them profiled, are trained for some batches of two microbatches
on the CPU with one thread in fp32, or in bf16 on the GPU where there is one. The cluster is what
`diaulos calibrate` wrote; without one the machine is calibrated first. Seconds on a CPU are those
that the process computes, so that other programs do not count.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from diaulos.clusters.cluster import Cluster
from diaulos.clusters.device import DType
from diaulos.clusters.files import read_cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import estimate
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.layers import build_layer
from diaulos.models.operations import ModelOperations, Workload
from diaulos.pricing.analytic.groups import Degrees
from diaulos.pricing.analytic.options import PRECISIONS, Precision, Runtime
from diaulos.pricing.calibration.block import gpt_sizes
from diaulos.pricing.calibration.calibrate import calibrate_cpu, calibrate_gpu
from diaulos.pricing.calibration.timing import Timer
from diaulos.pricing.memory_probe import peak_bytes
from diaulos.units import format_bytes, format_seconds

MICROBATCHES = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """A GPT and how many samples a microbatch of it has."""

    config: GPTConfig
    microbatch_size: int


def _cases(*sizes: tuple[int, int, int, int, int, int]) -> tuple[Case, ...]:
    return tuple(
        Case(
            config=GPTConfig(
                layers=layers,
                width=width,
                heads=heads,
                sequence_length=length,
                vocabulary=vocabulary,
            ),
            microbatch_size=samples,
        )
        for layers, width, heads, length, vocabulary, samples in sizes
    )


CASES = _cases(
    (3, 256, 4, 256, 256, 1),
    (1, 512, 8, 256, 1000, 1),
    (10, 128, 4, 128, 256, 1),
    (1, 256, 4, 1024, 2048, 1),
    (1, 384, 6, 64, 16384, 4),
)
"""Blocks, width, heads, positions, vocabulary and samples: deep and narrow, shallow and wide, long,
and with a large vocabulary."""
FURTHER_CASES = _cases(
    (2, 1024, 16, 256, 1000, 1),
    (4, 64, 2, 64, 256, 4),
    (2, 128, 2, 2048, 256, 1),
    (1, 256, 4, 512, 50257, 1),
    (6, 192, 6, 128, 256, 8),
    (16, 64, 4, 128, 512, 1),
    (3, 320, 5, 384, 5000, 3),
    (2, 768, 12, 128, 32000, 2),
    (4, 512, 8, 512, 1000, 4),
)
"""Larger and smaller ones, printed too; no test waits for them."""
LARGE_CASES = _cases(
    (12, 768, 12, 1024, 50257, 4),
    (6, 2048, 16, 1024, 32000, 4),
    (24, 512, 8, 512, 32000, 16),
    (4, 2048, 32, 4096, 32000, 1),
    (4, 4096, 32, 512, 1000, 8),
)
"""For a GPU."""


_HALF = Precision(
    name="bf16",
    products=DType.BF16,
    element_bytes=2,
    parameter_bytes=2,
    gradient_bytes=2,
    optimizer_bytes=4,
)
"""All in bf16, the moments of AdamW too: how a GPU trains here."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one case: seconds of a step, and bytes when most are held."""

    seconds: float
    bytes: float


def predicted(case: Case, cluster: Cluster, device: torch.device) -> Figures:
    """From the sizes of the model alone, on one device of the cluster."""
    one = replace(cluster.groups[0], devices_per_node=1)
    found = estimate(
        lambda workload: operations(case.config, workload),
        replace(cluster, groups=(one,)),
        Configuration(
            degrees=Degrees(),
            microbatch_size=case.microbatch_size,
            batch_size=MICROBATCHES * case.microbatch_size,
            sequence_length=case.config.sequence_length,
            precision=PRECISIONS["fp32"] if device.type == "cpu" else _HALF,
            runtime=Runtime(fused=False),
        ),
    )
    # What an allocator holds beside its tensors is not measured either.
    held = found.memory[0].total - found.memory[0].reserve
    return Figures(seconds=found.step_seconds, bytes=held)


def measured(case: Case, device: torch.device) -> Figures:
    """By training."""
    step, microbatch, state = _training(case, device)
    step()
    seconds = Timer(device, threads=1).seconds(step)
    return Figures(seconds=seconds, bytes=_held_bytes(state()) + peak_bytes(microbatch))


def operations(config: GPTConfig, workload: Workload) -> ModelOperations:
    """What the GPT computes, by closed form."""
    sizes = gpt_sizes(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        vocabulary=config.vocabulary,
        positions=config.sequence_length,
    )
    return decoder_operations(sizes, workload)


def _training(
    case: Case, device: torch.device
) -> tuple[Callable[[], None], Callable[[], None], Callable[[], list[Tensor]]]:
    """A step, a microbatch of it, and all tensors that live from one step to the next."""
    model = gpt(case.config)
    numbers = torch.float32 if device.type == "cpu" else torch.bfloat16
    layers = [build_layer(spec, seed=0).to(device, numbers) for spec in model.layers]
    inputs, targets = (tensor.to(device) for tensor in model.example(case.microbatch_size))
    weights = [weight for layer in layers for weight in layer.parameters()]
    optimizer = torch.optim.AdamW(weights)

    def loss() -> Tensor:
        hidden = inputs
        for layer in layers:
            hidden = layer(hidden)
        return model.loss(hidden, targets) / targets.numel()

    def microbatch() -> None:
        torch.autograd.backward(loss())

    def step() -> None:
        for _ in range(MICROBATCHES):
            microbatch()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def state() -> list[Tensor]:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        moments = [each for some in optimizer.state.values() for each in some.values()]
        return [*weights, *gradients, *moments]

    return step, microbatch, state


def _held_bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def main() -> None:
    """Print a row for each case."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        cluster = read_cluster(Path(sys.argv[1]))
    else:
        on_cpu = device.type == "cpu"
        cluster = (calibrate_cpu(processes=1) if on_cpu else calibrate_gpu()).cluster
    table = Table(box=None)
    for heading in (
        "blocks", "width", "heads", "length", "vocabulary", "samples", "measured", "predicted",
        "off", "bytes", "predicted", "off",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for case in (*CASES, *FURTHER_CASES) if device.type == "cpu" else LARGE_CASES:
        table.add_row(*_row(case, measured(case, device), predicted(case, cluster, device)))
    Console(width=140).print(table)


def _row(case: Case, found: Figures, expected: Figures) -> tuple[str, ...]:
    config = case.config
    sizes = (config.layers, config.width, config.heads, config.sequence_length, config.vocabulary)
    return (
        *map(str, (*sizes, case.microbatch_size)),
        format_seconds(found.seconds),
        format_seconds(expected.seconds),
        f"{expected.seconds / found.seconds - 1:+.1%}",
        format_bytes(found.bytes),
        format_bytes(expected.bytes),
        f"{expected.bytes / found.bytes - 1:+.1%}",
    )


if __name__ == "__main__":
    main()
