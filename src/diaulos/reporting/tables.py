"""A plan as a table that a person can read."""

from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Literal

from rich.table import Table

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph
from diaulos.planning.evaluation.evaluate import Evaluation
from diaulos.planning.evaluation.places import describe_devices, placed
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningResult
from diaulos.units import format_bytes, format_seconds

_MOST_RUNS = 4
"""Runs of consecutive layers that a cell lists before it counts the rest."""
_COLUMNS: Mapping[str, Literal["left", "right"]] = MappingProxyType(
    {
        "stage": "right",
        "layers": "left",
        "d": "right",
        "t": "right",
        "devices": "left",
        "options": "left",
        "in flight": "right",
        "memory": "right",
        "of limit": "right",
        "time": "right",
        "of bottleneck": "right",
    }
)


def plan_table(graph: LayerGraph, plan: Plan, evaluation: Evaluation, cluster: Cluster) -> Table:
    """One row for each stage, input end first; d is data, t tensor parallel.

    Where it matters on which devices a stage stands, there is a column for them.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = dict(_COLUMNS)
    if cluster.is_flat:
        del columns["devices"]
    for heading, justify in columns.items():
        # Where the console is narrow, text wraps and figures do not.
        table.add_column(heading, justify=justify, no_wrap=justify == "right")
    shares, firsts = evaluation.shares_of_bottleneck, placed(plan, cluster)
    rows = zip(plan.stages, evaluation.stages, shares, firsts, strict=True)
    for number, (stage, price, share, first) in enumerate(rows):
        devices = range(first, first + stage.devices)
        limit = price.memory_limit_bytes
        table.add_row(
            str(number),
            describe_layers(graph, stage),
            str(stage.data_parallel),
            str(stage.tensor_parallel),
            *([] if cluster.is_flat else [", ".join(describe_devices(cluster, devices))]),
            describe_options(stage),
            str(price.in_flight),
            format_bytes(price.memory_bytes),
            f"{price.memory_bytes / limit:.1%}" if limit else "-",
            format_seconds(price.time_per_sample_seconds),
            f"{share:.1%}",
        )
    return table


def plan_sentence(plan: Plan, evaluation: Evaluation, cluster: Cluster) -> str:
    """What a plan takes, on one line."""
    return (
        f"{format_seconds(evaluation.batch_seconds)} per batch of {plan.microbatches} microbatches "
        f"with {evaluation.pipelining.name}, {format_seconds(evaluation.time_per_sample_seconds)} "
        f"per sample, {plan.devices_used} of {cluster.devices} devices"
    )


def describe_layers(graph: LayerGraph, stage: Stage) -> str:
    """The layers of a stage, consecutive ones of the topological order as a range of ids."""
    place = {layer: index for index, layer in enumerate(graph.topological_order)}
    by_run = groupby(enumerate(stage.layers), key=lambda item: place[item[1]] - item[0])
    runs = [[layer for _, layer in run] for _, run in by_run]
    shown = [_describe_run(graph, run) for run in runs[:_MOST_RUNS]]
    left = sum(len(run) for run in runs[_MOST_RUNS:])
    return ", ".join(shown) + (f" and {left} more" if left else "")


def describe_options(stage: Stage) -> str:
    """How many layers of a stage run in which way: `20 vanilla, 4 activation recomp`."""
    counts = Counter(stage.options[layer] for layer in stage.layers)
    sharded = ["optimizer sharded"] if stage.sharded_optimizer else []
    if len(counts) == 1:
        return ", ".join((*counts, *sharded))
    return ", ".join((*(f"{count} {name}" for name, count in counts.items()), *sharded))


def _describe_run(graph: LayerGraph, run: list[int]) -> str:
    """`7 head`, `3-6 block_2..block_5`, `3-6 block`."""
    ends = [graph.layer(layer) for layer in dict.fromkeys((run[0], run[-1]))]
    names = dict.fromkeys(layer.name for layer in ends if layer.name)
    return " ".join(("-".join(str(layer.id) for layer in ends), "..".join(names))).strip()


def proof_phrase(result: PlanningResult) -> str:
    """What is known of all other plans, in a few words."""
    if result.proven_optimal:
        return "proven optimal"
    gap = "" if result.gap is None else f", at most {result.gap:.2%} slower than the best"
    why = "" if result.remark is None else f" ({result.remark})"
    return f"not proven optimal{gap}{why}"
