"""Llama 3.1 as torchtitan trained it with FSDP on H100s.

What is known of it counts: parameters are spread over replicas (ZeRO 3), tensor parallelism shares
positions too, kernels are fused where it was compiled, "selective" keeps every second product and
attention, and float8 is of products alone.
"""

from collections.abc import Iterator
from pathlib import Path

from diaulos.clusters.expression import parse_cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import Estimate
from diaulos.estimating.measured.cases import (
    Case,
    Check,
    Quantity,
    decoder_model,
    is_held_out,
    read_rows,
)
from diaulos.estimating.measured.megatron import nodes_of
from diaulos.models.decoders.sizes import AttentionSizes, BlockSizes, DecoderSizes, NetworkSizes
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.groups import Degrees
from diaulos.pricing.analytic.options import PRECISIONS, Recompute, Runtime

_GIB = 2.0**30
_SIZES = {
    "8B": (4096, 14336, 32, 32),
    "70B": (8192, 28672, 64, 80),
    "405B": (16384, 53248, 128, 126),
}
"""Hidden size, width of the network, heads and blocks."""


def read_torchtitan(file: Path) -> Iterator[Case]:
    """One case a row."""
    for index, row in enumerate(read_rows(file)):
        kind = "bf16" if row["float8"] in ("0", "bf16") else "float8"
        checks = [
            Check(
                group=kind,
                quantity=Quantity.TIME,
                measured=1 / float(row["tps_per_gpu"]),
                predicted=_token_seconds,
            )
        ]
        if row["mem_GiB_max_rank"]:
            checks.append(
                Check(
                    group=kind,
                    quantity=Quantity.MEMORY,
                    measured=float(row["mem_GiB_max_rank"]) * _GIB,
                    predicted=_memory_bytes,
                )
            )
        configuration = _configuration(row, "bf16" if kind == "bf16" else "fp8")
        degrees = configuration.degrees
        yield Case(
            label=f"{row['model']} on {row['gpus']} {row['gpu']}, fsdp={degrees.data} "
            f"t={degrees.tensor} p={degrees.pipeline} c={degrees.context} "
            f"{configuration.precision.name} {configuration.recompute.value}"
            f"{' compiled' if row['compile'] == '1' else ''}",
            model=decoder_model(_llama(row["model"])),
            cluster=parse_cluster(nodes_of(int(row["gpus"]), row["gpu"])),
            configuration=configuration,
            checks=tuple(checks),
            held_out=is_held_out(index),
        )


def _configuration(row: dict[str, str], precision: str) -> Configuration:
    data, tensor, pipeline, context = (int(row[key]) for key in ("fsdp", "tp", "pp", "cp"))
    local = int(row["local_batch"])
    looped = row["schedule"].startswith("Interleaved")
    return Configuration(
        degrees=Degrees(tensor=tensor, pipeline=pipeline, data=data, context=context),
        microbatch_size=local if pipeline == 1 else max(local // pipeline, 1),
        batch_size=local * data,
        sequence_length=int(row["seq"]),
        virtual_stages=2 if looped else 1,
        schedule="interleaved" if looped else "1f1b",
        recompute=Recompute.FULL if row["ac"] == "full" else Recompute.OPERATIONS,
        sequence_parallel=tensor > 1,
        sharding=Sharding.PARAMETERS,
        precision=PRECISIONS[precision],
        runtime=Runtime(fused=row["compile"] == "1", hides_tensor_parallel=row["async_tp"] == "1"),
    )


def _llama(name: str) -> DecoderSizes:
    hidden, width, heads, blocks = _SIZES[name]
    attention = AttentionSizes(heads=heads, key_value_heads=8, head_size=128)
    block = BlockSizes(attention=attention, network=NetworkSizes(width=width))
    return DecoderSizes(
        name=f"llama-3.1-{name}",
        hidden=hidden,
        vocabulary=128256,
        blocks=(block,) * blocks,
        tied=False,
    )


def _token_seconds(found: Estimate) -> float:
    """A device's time for one token."""
    return 1 / found.tokens_per_second_per_device


def _memory_bytes(found: Estimate) -> float:
    """What the allocator reserves on the heaviest rank."""
    return found.memory_bytes
