"""A plan as a table that a person can read."""

from collections import Counter
from itertools import groupby

from rich.table import Table

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph
from diaulos.planning.evaluate import Evaluation
from diaulos.planning.plan import Plan, Stage
from diaulos.units import format_bytes, format_seconds

_MOST_RUNS = 4
"""Runs of consecutive layers that a cell lists before it counts the rest."""


def plan_table(graph: LayerGraph, plan: Plan, evaluation: Evaluation, cluster: Cluster) -> Table:
    """One row for each stage, input end first; d is data, t tensor parallel."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("stage", justify="right")
    table.add_column("layers")
    for heading in ("d", "t"):
        table.add_column(heading, justify="right")
    table.add_column("options")
    for heading in ("in flight", "memory", "of limit", "time", "of bottleneck"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = zip(plan.stages, evaluation.stages, evaluation.shares_of_bottleneck, strict=True)
    for number, (stage, price, share) in enumerate(rows):
        limit = cluster.memory_bytes
        table.add_row(
            str(number),
            describe_layers(graph, stage),
            str(stage.data_parallel),
            str(stage.tensor_parallel),
            describe_options(stage),
            str(price.in_flight),
            format_bytes(price.memory_bytes),
            f"{price.memory_bytes / limit:.1%}" if limit else "-",
            format_seconds(price.time_per_sample_seconds),
            f"{share:.1%}",
        )
    return table


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
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _describe_run(graph: LayerGraph, run: list[int]) -> str:
    first, last = graph.layer(run[0]), graph.layer(run[-1])
    if len(run) == 1:
        return first.label
    named = {first.name, last.name} != {None}
    return f"{first.label} - {last.label}" if named else f"{first.id}-{last.id}"
