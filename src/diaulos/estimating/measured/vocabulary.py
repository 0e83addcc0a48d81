"""Stages of a GPT with vocabularies of 32k to 256k, each measured apart.

Yeung et al., "Balancing Pipeline Parallelism with Vocabulary Parallelism", 2024: eight A100s, one
stage each, flash attention, head not tied.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
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
from diaulos.models.decoders.inline import gpt_sizes
from diaulos.pricing.analytic.groups import Degrees

_STAGES, _BLOCKS, _MICROBATCHES = 8, 32, 128


def read_vocabulary(file: Path) -> Iterator[Case]:
    """One case a row, with times of the forward and of the backward of its stage."""
    for index, row in enumerate(read_rows(file)):
        stage, length = int(row["stage"]), int(row["seq"])
        blocks = int(float(row["layers_on_stage_derived"]))
        sizes = gpt_sizes(
            hidden=3072, layers=_BLOCKS, heads=24, vocabulary=int(row["vocab"]), positions=length
        )
        yield Case(
            label=f"{row['layout']} stage {stage}",
            model=decoder_model(replace(sizes, tied=False)),
            cluster=parse_cluster("8xA100-80GB"),
            configuration=Configuration(
                degrees=Degrees(pipeline=_STAGES),
                microbatch_size=1,
                batch_size=_MICROBATCHES,
                sequence_length=length,
                blocks_per_stage=_shares(stage, blocks),
            ),
            checks=(
                Check(
                    group="forward",
                    quantity=Quantity.TIME,
                    measured=int(row["fwd_us"]) / 1e6,
                    predicted=partial(_forward_seconds, stage),
                ),
                Check(
                    group="backward",
                    quantity=Quantity.TIME,
                    measured=int(row["bwd_us"]) / 1e6,
                    predicted=partial(_backward_seconds, stage),
                ),
            ),
            held_out=is_held_out(index),
        )


def _shares(stage: int, blocks: int) -> tuple[int, ...]:
    """So many blocks on this stage; what the others have does not matter to it."""
    each, more = divmod(_BLOCKS - blocks, _STAGES - 1)
    others = [each + (index < more) for index in range(_STAGES - 1)]
    return (*others[:stage], blocks, *others[stage:])


def _forward_seconds(stage: int, found: Estimate) -> float:
    return found.stages[stage].seconds.forward.total


def _backward_seconds(stage: int, found: Estimate) -> float:
    return found.stages[stage].seconds.backward.total
