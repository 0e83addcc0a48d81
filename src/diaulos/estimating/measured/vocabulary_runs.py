"""Whole runs of a GPT with vocabularies of 32k to 256k on a pipeline of eight A100s.

Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024: 1F1B with even
shares of blocks (baseline), or with shares that even out the FLOPs (redis). Which shares these were
is not stated; they are worked out as the planner does it, from FLOPs. Other rows split the
vocabulary over all stages, which is not priced.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from diaulos.clusters.expression import parse_cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import Estimate
from diaulos.estimating.measured.cases import (
    Case,
    Check,
    PassedOver,
    Quantity,
    decoder_model,
    is_held_out,
    read_rows,
)
from diaulos.estimating.search.splits import balanced_shares
from diaulos.models.decoders.inline import gpt_sizes
from diaulos.models.operations import Model
from diaulos.pricing.analytic.groups import Degrees

_PRICED = ("baseline", "redis")
_KILO = {"32k": 32_768, "64k": 65_536, "128k": 131_072, "256k": 256_000}
"""Vocabularies as the file that times stages calls them."""


def read_vocabulary_runs(file: Path) -> Iterator[Case | PassedOver]:
    """One case a row, with the MFU and the memory of the rank that holds most."""
    for index, row in enumerate(read_rows(file)):
        label = f"{row['method']} vocabulary {row['vocab']}, {row['seq']} tokens"
        if row["method"] not in _PRICED:
            yield PassedOver(label=label, reason="a vocabulary split over stages is not priced")
            continue
        sizes = gpt_sizes(
            hidden=int(row["hidden"]),
            layers=int(row["layers"]),
            heads=int(row["heads"]),
            vocabulary=_KILO[row["vocab"]],
            positions=int(row["seq"]),
        )
        model = decoder_model(replace(sizes, tied=False))
        yield Case(
            label=label,
            model=model,
            cluster=parse_cluster("8xA100-80GB"),
            configuration=_configuration(row, model),
            checks=(
                Check(
                    group=f"MFU, {row['method']}",
                    quantity=Quantity.TIME,
                    measured=1 / (float(row["MFU_pct"]) / 100),
                    predicted=_time_over_least,
                ),
                Check(
                    group=f"peak, {row['method']}",
                    quantity=Quantity.MEMORY,
                    measured=float(row["peak_mem_GB"]) * 2**30,
                    predicted=_peak_bytes,
                ),
            ),
            held_out=is_held_out(index),
        )


def _configuration(row: dict[str, str], model: Model) -> Configuration:
    even = Configuration(
        degrees=Degrees(pipeline=int(row["pp"])),
        microbatch_size=int(row["micro_batch"]),
        batch_size=int(row["micro_batch"]) * int(row["n_microbatches"]),
        sequence_length=int(row["seq"]),
    )
    if row["method"] == "baseline":
        return even
    layers = [layer.operations for layer in model(even.workload).layers]
    flops = [layer.model_flops for layer in layers if layer.recomputable]
    ends = [layer.model_flops for layer in layers if not layer.recomputable]
    shares = balanced_shares(flops, before=0.0, behind=sum(ends), stages=even.stages)
    return replace(even, blocks_per_stage=shares)


def _time_over_least(found: Estimate) -> float:
    """A step's time over that of its FLOPs at the peak rate: one over the MFU."""
    return 1 / found.mfu


def _peak_bytes(found: Estimate) -> float:
    """What tensors take; without what the allocator holds beyond them."""
    return max(memory.total - memory.reserve for memory in found.memory)
