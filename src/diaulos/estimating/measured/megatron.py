"""GPTs that Megatron-LM trained on A100s: three papers, two years of its code.

What is known of the code counts: attention was plain, and until the end of 2021 no exchange of a
tensor-parallel group ran beside the products of the backward. Gradients were summed over replicas
after the last backward.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from diaulos.clusters.cluster import Cluster
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
from diaulos.models.decoders.inline import gpt_sizes
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.groups import Degrees
from diaulos.pricing.analytic.options import Recompute, Runtime
from diaulos.pricing.analytic.shares import activation_bytes, parameter_share
from diaulos.pricing.devices.attention import AttentionKind

_GIB = 2.0**30
_VOCABULARY = 51200
"""Of all GPTs of these papers; vTrain's rows do not say theirs."""
_OLD = Runtime(hides_tensor_parallel=False, hides_data_parallel=False)
_NEW = Runtime(hides_tensor_parallel=True, hides_data_parallel=False)


def step_seconds(found: Estimate) -> float:
    """Of the whole step."""
    return found.step_seconds


def read_sc21(file: Path) -> Iterator[Case]:
    """Narayanan et al., SC 2021, table 1: weak scaling from 1.7 B to 1 T."""
    for index, row in enumerate(read_rows(file)):
        yield _case(
            row, index, _OLD, Check(
                group="iteration", quantity=Quantity.TIME,
                measured=float(row["iter_time_s_derived"]), predicted=step_seconds,
            ),
        )  # fmt: skip


def read_sc21_sharded(file: Path) -> Iterator[Case]:
    """The same paper, table 2: against ZeRO-3. Times are derived as in table 1."""
    for index, row in enumerate(read_rows(file)):
        sharded = row["scheme"] == "ZeRO-3"
        inner = int(row["tp"]) * int(row["pp"])
        filled = {**row, "dp": str(int(row["gpus"]) // inner), "vp": "1", "recompute": "full"}
        check = Check(
            group=row["scheme"],
            quantity=Quantity.TIME,
            measured=_paper_flops(row) / (float(row["achieved_tflops_per_gpu"]) * 1e12)
            / int(row["gpus"]),
            predicted=step_seconds,
        )  # fmt: skip
        level = Sharding.PARAMETERS if sharded else Sharding.NOTHING
        yield _case(filled, index, _OLD, check, sharding=level)


def read_vtrain(file: Path) -> Iterator[Case]:
    """Bang et al., vTrain, MICRO 2024: sweeps of degrees and microbatch sizes."""
    for index, row in enumerate(read_rows(file)):
        filled = {**row, "gpu": "A100-80GB", "vp": "1"}
        check = Check(
            group=f"{row['params_B']}B",
            quantity=Quantity.TIME,
            measured=float(row["iter_time_ms"]) / 1e3,
            predicted=step_seconds,
        )
        case = _case(filled, index, _OLD, check)
        yield replace(case, cluster=_four_adapters(case.cluster))


def _four_adapters(cluster: Cluster) -> Cluster:
    """Nodes with an adapter of 200 Gb/s for two devices; the DGX A100 has one for each.

    That vTrain's nodes are such is inferred from its rows with 16 devices a tensor-parallel group.
    """
    rate = cluster.link.bandwidth_bytes_per_second / 2
    return replace(cluster, link=replace(cluster.link, bandwidth_bytes_per_second=rate))


def read_seqpar(file: Path) -> Iterator[Case]:
    """Korthikanti et al., MLSys 2023: times, and memory of the first stage.

    Published memory is that of the blocks alone, without embedding and head: the bytes are those
    of the paper's formulas to all digits. Percentages are of tensor parallelism alone without
    recomputation, and "full" is without sequence parallelism (its table 2). MFU and HFU repeat the
    times.
    """
    for index, row in enumerate(read_rows(file)):
        if row["quantity"] in _SEQPAR:
            group, quantity, factor, predicted = _SEQPAR[row["quantity"]]
            whole = row["quantity"] == "activation_pct_of_baseline" and row["recompute"] == "full"
            filled = {**row, "seqpar": "0"} if whole else row
            check = Check(
                group=group,
                quantity=quantity,
                measured=float(row["value"]) * factor,
                predicted=predicted,
            )
            yield _case(filled, index, _NEW, check)


def _case(
    row: dict[str, str],
    index: int,
    runtime: Runtime,
    check: Check,
    *,
    sharding: Sharding = Sharding.NOTHING,
) -> Case:
    number = {key: int(float(row[key])) for key in ("hidden", "heads", "layers", "seq")}
    tensor, pipeline, data, virtual = (int(row[key]) for key in ("tp", "pp", "dp", "vp"))
    devices = int(row["gpus"])
    sizes = gpt_sizes(
        hidden=number["hidden"],
        layers=number["layers"],
        heads=number["heads"],
        vocabulary=int(row.get("vocab") or _VOCABULARY),
        positions=number["seq"],
    )
    configuration = Configuration(
        degrees=Degrees(tensor=tensor, pipeline=pipeline, data=data),
        microbatch_size=int(row["micro_batch"]),
        batch_size=int(row["global_batch"]),
        sequence_length=number["seq"],
        virtual_stages=virtual,
        schedule="interleaved" if virtual > 1 else "1f1b",
        recompute=Recompute(row["recompute"]),
        sequence_parallel=row.get("seqpar") == "1",
        sharding=sharding,
        attention=AttentionKind.PLAIN,
        runtime=runtime,
    )
    where = f"{row.get('model') or row['params_B'] + 'B'} on {devices}"
    ways = row["recompute"] + ("+sp" if row.get("seqpar") == "1" else "")
    return Case(
        label=f"{where}, t={tensor} p={pipeline} d={data} v={virtual} "
        f"microbatch={row['micro_batch']} {ways}",
        model=decoder_model(sizes),
        cluster=parse_cluster(nodes_of(devices, row.get("gpu") or "A100-80GB")),
        configuration=configuration,
        checks=(check,),
        held_out=is_held_out(index),
    )


def nodes_of(devices: int, name: str) -> str:
    """Nodes of eight, as all of these clusters have."""
    return f"{devices}x{name}" if devices < 8 else f"{devices // 8}x8x{name}"


def _paper_flops(row: dict[str, str]) -> float:
    """96 B s l h^2 (1 + s/6h + V/16lh): forward twice and backward (its equation 3)."""
    batch, length, layers, hidden = (
        int(row[key]) for key in ("global_batch", "seq", "layers", "hidden")
    )
    terms = 1 + length / (6 * hidden) + int(row["vocab"]) / (16 * layers * hidden)
    return 96.0 * batch * length * layers * hidden**2 * terms


def _block_state_bytes(found: Estimate) -> float:
    """Of the blocks of the first place, of all its stages."""
    depth = found.configuration.degrees.pipeline
    total = 0.0
    for stage in found.stages[::depth]:
        options = found.configuration.layer_options
        for layer in stage.layers.layers:
            if layer.operations.recomputable:
                count = sum(
                    some.count * parameter_share(some.region, options)
                    for some in layer.operations.parameters
                )
                total += count * found.configuration.precision.state_bytes
    return total


def _activation_bytes(found: Estimate) -> float:
    return found.memory[0].activations


def _activation_percent(found: Estimate) -> float:
    """Of one block, against the same with tensor parallelism alone and nothing recomputed."""
    options = found.configuration.layer_options
    plain = replace(options, sequence_parallel=False, recompute=Recompute.NONE)
    blocks = [
        layer.operations for layer in found.operations.layers if layer.operations.recomputable
    ]
    block = blocks[0]  # all are alike
    return 100 * activation_bytes(block, options) / activation_bytes(block, plain)


_SEQPAR: Mapping[str, tuple[str, Quantity, float, Callable[[Estimate], float]]] = MappingProxyType(
    {
        "iteration_time": ("iteration", Quantity.TIME, 1.0, step_seconds),
        "params+optimizer_memory": (
            "parameters and optimizer", Quantity.MEMORY, _GIB, _block_state_bytes,
        ),
        "activation_memory": ("activations", Quantity.MEMORY, _GIB, _activation_bytes),
        "activation_pct_of_baseline": (
            "activations, percent", Quantity.MEMORY, 1.0, _activation_percent,
        ),
    }
)  # fmt: skip
