"""What other trainers can do, and the flags with which they run a configuration.

Megatron-LM's are those of its core_v0.14 (`megatron/training/arguments.py`), torchtitan's those of
its job config.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from diaulos.estimating.configuration import Configuration
from diaulos.exporting.layout import print_layout
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.options import Recompute
from diaulos.pricing.devices.attention import AttentionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What another trainer can do, and its flags."""

    name: str
    schedules: tuple[str, ...]
    recompute: tuple[Recompute, ...]
    sharding: tuple[Sharding, ...]
    flags: Callable[[Configuration], list[str]] | None = None
    """Those of a configuration that keeps to what it can do; None where a plan file says it."""
    splits_sequences: bool = True
    """Whether it has context parallelism."""
    spreads_experts: bool = True
    """Whether it has expert parallelism."""


def megatron_flags(chosen: Configuration) -> list[str]:
    """Of Megatron-LM, for a configuration that it runs."""
    degrees = chosen.degrees
    flags = [
        f"--tensor-model-parallel-size {degrees.tensor}",
        f"--pipeline-model-parallel-size {degrees.pipeline}",
    ]
    if degrees.context > 1:
        flags.append(f"--context-parallel-size {degrees.context}")
    if degrees.expert > 1:
        flags.append(f"--expert-model-parallel-size {degrees.expert}")
    if chosen.blocks_per_stage is not None:
        flags.append(f"--pipeline-model-parallel-layout '{print_layout(chosen.blocks_per_stage)}'")
    elif chosen.virtual_stages > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {chosen.virtual_stages}")
    if chosen.sequence_parallel:
        flags.append("--sequence-parallel")
    flags += [
        f"--micro-batch-size {chosen.microbatch_size}",
        f"--global-batch-size {chosen.batch_size}",
        f"--seq-length {chosen.sequence_length}",
        *_megatron_ways(chosen),
    ]
    return flags


def torchtitan_flags(chosen: Configuration) -> list[str]:
    """Of torchtitan, for a configuration that it runs."""
    if chosen.degrees.data > 1 and chosen.sharding < Sharding.PARAMETERS:
        spread = f"--parallelism.data_parallel_replicate_degree {chosen.degrees.data}"
        shard = "--parallelism.data_parallel_shard_degree 1"
    else:
        spread = "--parallelism.data_parallel_replicate_degree 1"
        shard = f"--parallelism.data_parallel_shard_degree {chosen.degrees.data}"
    names = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe"}
    modes = {Recompute.NONE: "none", Recompute.OPERATIONS: "selective", Recompute.FULL: "full"}
    flags = [
        spread,
        shard,
        f"--parallelism.tensor_parallel_degree {chosen.degrees.tensor}",
        f"--parallelism.pipeline_parallel_degree {chosen.degrees.pipeline}",
        f"--parallelism.context_parallel_degree {chosen.degrees.context}",
    ]
    if chosen.degrees.expert > 1:
        flags.append(f"--parallelism.expert_parallel_degree {chosen.degrees.expert}")
    if chosen.degrees.pipeline > 1:
        flags += [
            f"--parallelism.pipeline_parallel_schedule {names[chosen.schedule]}",
            f"--parallelism.pipeline_parallel_microbatch_size {chosen.microbatch_size}",
        ]
    return [
        *flags,
        f"--activation_checkpoint.mode {modes[chosen.recompute]}",
        f"--training.local_batch_size {chosen.batch_size // chosen.degrees.data}"
        if chosen.degrees.pipeline > 1
        else f"--training.local_batch_size {chosen.microbatch_size}",
        f"--training.global_batch_size {chosen.batch_size}",
        f"--training.seq_len {chosen.sequence_length}",
    ]


def _megatron_ways(chosen: Configuration) -> Iterator[str]:
    if chosen.recompute is Recompute.SELECTIVE:
        yield "--recompute-granularity selective"
    if chosen.recompute is Recompute.FULL:
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    if chosen.sharding is Sharding.OPTIMIZER:
        yield "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
    if chosen.sharding >= Sharding.GRADIENTS:
        strategies = {2: "optim_grads", 3: "optim_grads_params"}
        strategy = strategies[int(chosen.sharding)]
        yield f"--use-megatron-fsdp --data-parallel-sharding-strategy {strategy}"
    if chosen.attention is AttentionKind.FLASH:
        yield "--attention-backend flash"
    yield from {
        "bf16": ("--bf16",),
        "fp16": ("--fp16",),
        "fp8": ("--bf16", "--fp8-format hybrid"),
    }.get(chosen.precision.name, ())


MEGATRON = Trainer(
    name="Megatron-LM",
    schedules=("1f1b", "interleaved"),
    recompute=(Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL),
    sharding=tuple(Sharding),
    flags=megatron_flags,
)
TORCHTITAN = Trainer(
    name="torchtitan",
    schedules=("1f1b", "interleaved", "gpipe"),
    recompute=(Recompute.NONE, Recompute.OPERATIONS, Recompute.FULL),
    sharding=(Sharding.NOTHING, Sharding.PARAMETERS),
    flags=torchtitan_flags,
)
DIAULOS = Trainer(
    name="diaulos",
    schedules=("1f1b", "zero-bubble", "gpipe", "2bw"),
    recompute=(Recompute.NONE, Recompute.FULL),
    sharding=(Sharding.NOTHING, Sharding.OPTIMIZER),
    splits_sequences=False,
    spreads_experts=False,
)
TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {"diaulos": DIAULOS, "megatron": MEGATRON, "torchtitan": TORCHTITAN}
)
"""By the names that flags use."""
