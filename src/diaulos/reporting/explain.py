"""Why a plan is as fast as it is: as tables, sentences, and a document."""

from dataclasses import asdict
from typing import Any

from rich.table import Table

from diaulos.models.graph import LayerGraph
from diaulos.planning.explanation.explain import Explanation, Limit, StageExplanation
from diaulos.planning.explanation.gap import Gap
from diaulos.planning.explanation.what_if import Alternative, WhatIf
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem
from diaulos.reporting.infeasibility import describe_kinds
from diaulos.reporting.tables import describe_layers
from diaulos.units import format_bytes, format_seconds

_MOST_KINDS = 3
"""Kinds of memory that a cell names before it sums up the rest."""


def stages_table(graph: LayerGraph, plan: Plan, explanation: Explanation) -> Table:
    """One row for each stage: what fills it and what binds it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("stage", justify="right", no_wrap=True)
    table.add_column("layers")
    for heading in ("time", "waits", "on links", "of memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("filled by")
    table.add_column("bound by")
    for number, (stage, told) in enumerate(zip(plan.stages, explanation.stages, strict=True)):
        limit = told.price.memory_limit_bytes
        table.add_row(
            str(number),
            describe_layers(graph, stage),
            format_seconds(told.price.time_per_sample_seconds),
            format_seconds(told.waits_seconds) if told.waits_seconds > 0 else "-",
            f"{told.link_share:.1%}",
            f"{told.price.memory_bytes / limit:.1%}" if limit else "-",
            describe_kinds(told.price.memory_by_kind, told.price.in_flight, most=_MOST_KINDS)
            or "nothing",
            _limit_text(told),
        )
    return table


def gap_table(gap: Gap) -> Table:
    """What the time of a microbatch is made of, in seconds that add up; zeros are left out."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("seconds of a microbatch go to")
    table.add_column("", justify="right")
    table.add_column("", justify="right")
    total = gap.total_seconds
    parts = {"least work, in perfect balance (the bound)": gap.bound_seconds, **gap.parts_seconds}
    # Parts are sums of differences: what is not above rounding is nothing.
    for name, seconds in parts.items():
        if seconds > 1e-12 * total:
            table.add_row(name, format_seconds(seconds), _share(seconds, total))
    table.add_row("all", format_seconds(total), _share(total, total))
    return table


def what_if_sentences(
    problem: PlanningProblem, what_if: WhatIf, batch_seconds: float, *, more_memory_bytes: float
) -> list[str]:
    """What another plan, more devices or more memory would change."""
    sentences = []
    if what_if.new_plan is not None:
        sentences.append(
            f"planned anew on the same devices: {_gain(what_if.new_plan, batch_seconds)}"
        )
        batch_seconds = what_if.new_plan.batch_seconds
    if len(problem.cluster.groups) > 1:
        return sentences
    more = what_if.more_devices
    if more is None:
        known = "is" if what_if.proven else "was found that is"
        sentences.append(f"more devices: no number of them {known} faster")
    else:
        count = more.cluster.devices - problem.cluster.devices
        sentences.append(
            f"{count} more device{'s' * (count > 1)}: {_gain(more, batch_seconds)}"
            + ("; fewer do not help" if count > 1 and what_if.proven else "")
        )
    size = format_bytes(more_memory_bytes)
    memory = what_if.more_memory
    nothing = "not faster" if what_if.proven else "nothing faster was found"
    text = nothing if memory is None else _gain(memory, batch_seconds)
    sentences.append(f"{size} more memory on each device: {text}")
    return sentences


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """Stages and gap in seconds and bytes."""
    gap = explanation.gap
    return {
        "time_per_sample_seconds": explanation.evaluation.time_per_sample_seconds,
        "batch_seconds": explanation.evaluation.batch_seconds,
        "seconds_of_a_microbatch": {**asdict(gap), "total_seconds": gap.total_seconds},
        "stages": [_stage_document(stage) for stage in explanation.stages],
    }


def what_if_document(what_if: WhatIf) -> dict[str, Any]:
    """Each alternative with its cluster and times; null where it is not faster."""
    return {
        "new_plan": _alternative_document(what_if.new_plan),
        "more_devices": _alternative_document(what_if.more_devices),
        "more_memory": _alternative_document(what_if.more_memory),
        "proven": what_if.proven,
    }


def _stage_document(told: StageExplanation) -> dict[str, Any]:
    price = told.price
    return {
        "bound_by": told.limit.value,
        "barred_layers": list(told.barred_layers),
        "time_per_sample_seconds": price.time_per_sample_seconds,
        "compute_seconds": price.compute_seconds,
        "communication_seconds": price.communication_seconds,
        "reduction_seconds": price.reduction_seconds,
        "waits_seconds": told.waits_seconds,
        "in_flight": price.in_flight,
        "memory_bytes": price.memory_bytes,
        "memory_limit_bytes": price.memory_limit_bytes,
        "memory_by_kind": dict(price.memory_by_kind),
    }


def _alternative_document(found: Alternative | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "devices": found.cluster.devices,
        "memory_bytes": found.cluster.largest_memory_bytes,
        "batch_seconds": found.batch_seconds,
    }


def _limit_text(told: StageExplanation) -> str:
    name: str = told.limit.value
    if told.limit is not Limit.MEMORY:
        return name
    count = len(told.barred_layers)
    return f"{name}, which bars {count} faster option{'s' * (count > 1)}"


def _gain(found: Alternative, batch_seconds: float) -> str:
    part = 1 - found.batch_seconds / batch_seconds
    return f"{format_seconds(found.batch_seconds)} per batch, {part:.1%} less"


def _share(seconds: float, total: float) -> str:
    return f"{seconds / total:.1%}" if total > 0 else "-"
