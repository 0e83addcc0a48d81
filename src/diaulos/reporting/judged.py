"""What was simulated to choose a plan, in tables, sentences and documents."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from diaulos.schedules.judging.judged import JudgedPlan, Judgement
from diaulos.schedules.judging.schedule_choice import ScheduleStanding
from diaulos.units import format_bytes, format_seconds

_FIGURES = ("stages", "closed form", "simulated", "devices", "fullest device")


def schedules_table(standings: Sequence[ScheduleStanding]) -> Table:
    """One row for each schedule, with the batch of its best plan."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("schedule", no_wrap=True)
    for heading in _FIGURES:
        table.add_column(heading, justify="right", no_wrap=True)
    for standing in standings:
        best = None if standing.judgement is None else standing.judgement.best
        cells = ("no plan", *("-" for _ in _FIGURES[1:])) if best is None else _cells(best)
        table.add_row(standing.pipelining.name, *cells)
    return table


def schedule_reasons(standings: Sequence[ScheduleStanding]) -> list[str]:
    """Why schedules have no plan."""
    return [
        f"no plan for {standing.pipelining.name}: {standing.reason}"
        for standing in standings
        if standing.reason is not None
    ]


def judgement_sentence(judgement: Judgement) -> str:
    """What the simulator says of a plan, beside what the closed form does."""
    best, first = judgement.best, judgement.considered[0]
    assert best is not None, "only plans are told of"
    said = (
        f"simulated, a batch takes {format_seconds(best.simulated_seconds)}; the closed form says "
        f"{format_seconds(best.evaluation.batch_seconds)}"
    )
    if best == first:
        return said
    by_closed_form = format_seconds(first.evaluation.batch_seconds)
    return (
        f"{said}; the plan that is best by the closed form, with {by_closed_form}, takes "
        f"{format_seconds(first.simulated_seconds)}"
    )


def judgement_document(judgement: Judgement) -> dict[str, Any]:
    """What a plan was compared with, in seconds."""
    best = judgement.best
    return {
        "simulated_batch_seconds": None if best is None else best.simulated_seconds,
        "simulations": judgement.simulations,
        "considered": [_figures(plan) for plan in judgement.considered],
    }


def schedule_documents(standings: Sequence[ScheduleStanding]) -> list[dict[str, Any]]:
    """Schedules with the figures of their best plans."""
    return [
        {
            "schedule": standing.pipelining.name,
            "feasible": standing.judgement is not None and standing.judgement.best is not None,
            "reason": standing.reason,
            **(
                {}
                if standing.judgement is None or standing.judgement.best is None
                else _figures(standing.judgement.best)
            ),
        }
        for standing in standings
    ]


def _cells(judged: JudgedPlan) -> tuple[str, ...]:
    found = _figures(judged)
    return (
        str(found["stages"]),
        format_seconds(found["batch_seconds"]),
        format_seconds(found["simulated_batch_seconds"]),
        str(found["devices_used"]),
        format_bytes(found["fullest_device_bytes"]),
    )


def _figures(judged: JudgedPlan) -> dict[str, Any]:
    return {
        "stages": len(judged.plan.stages),
        "batch_seconds": judged.evaluation.batch_seconds,
        "simulated_batch_seconds": judged.simulated_seconds,
        "devices_used": judged.plan.devices_used,
        "fullest_device_bytes": max(price.memory_bytes for price in judged.evaluation.stages),
    }
