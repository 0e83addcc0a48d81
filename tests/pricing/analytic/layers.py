"""Layers, options and groups that the tests of analytic prices share."""

from typing import Any

from diaulos.clusters.expression import parse_cluster
from diaulos.models.operations import LayerOperations, Workload
from diaulos.pricing.analytic.groups import Degrees, Groups, rank_groups
from diaulos.pricing.analytic.options import LayerOptions
from tests.estimating.models import gpt, published


def gpt_block(samples: int = 4, length: int = 2048) -> LayerOperations:
    """A block of GPT-22B (Korthikanti et al., MLSys 2023)."""
    model = gpt(hidden=6144, layers=1, heads=64)
    return model(Workload(microbatch_size=samples, sequence_length=length)).layers[1].operations


def block_of(name: str, index: int = 0, **sizes: int) -> LayerOperations:
    """A block of a published model."""
    workload = Workload(**{"microbatch_size": 1, "sequence_length": 2048, **sizes})
    layers = {layer.name: layer for layer in published(name)(workload).layers}
    return layers[f"block_{index}"].operations


def groups(options: LayerOptions, *, cluster: str = "8x8xA100-80GB", data: int = 1) -> Groups:
    """The groups of these options."""
    degrees = Degrees(
        tensor=options.tensor_parallel,
        context=options.context_parallel,
        data=data * options.expert_parallel,
        expert=options.expert_parallel,
    )
    return rank_groups(parse_cluster(cluster), degrees)


def options(**changes: Any) -> LayerOptions:
    """One device that recomputes nothing, unless said otherwise."""
    return LayerOptions(**changes)
