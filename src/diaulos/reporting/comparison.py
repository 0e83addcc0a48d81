"""Contenders side by side, as a table and as a document."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from diaulos.planning.explanation.comparison import Standing
from diaulos.units import format_bytes, format_seconds

_FIGURES = ("per sample", "per batch", "to the best", "devices", "stages", "fullest device")


def comparison_table(standings: Sequence[Standing]) -> Table:
    """One row for each contender; `reasons` says why some have no plan."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("planner", no_wrap=True)
    for heading in _FIGURES:
        table.add_column(heading, justify="right", no_wrap=True)
    for standing in standings:
        table.add_row(standing.name, *_cells(standing))
    return table


def reasons(standings: Sequence[Standing]) -> list[str]:
    """Why contenders have no plan, one line for all that share a reason."""
    names: dict[str, list[str]] = {}
    for standing in standings:
        if standing.reason is not None:
            names.setdefault(standing.reason, []).append(standing.name)
    return [f"no plan for {'; '.join(some)}: {reason}" for reason, some in names.items()]


def comparison_documents(standings: Sequence[Standing]) -> list[dict[str, Any]]:
    """The same as JSON, in seconds and bytes."""
    return [{"planner": standing.name, **_figures(standing)} for standing in standings]


def _cells(standing: Standing) -> tuple[str, ...]:
    found = _figures(standing)
    if not found["feasible"]:
        return ("no plan", *("-" for _ in _FIGURES[1:]))
    return (
        format_seconds(found["time_per_sample_seconds"]),
        format_seconds(found["batch_seconds"]),
        f"{found['ratio']:.3f}",
        str(found["devices_used"]),
        str(found["stages"]),
        format_bytes(found["fullest_device_bytes"]),
    )


def _figures(standing: Standing) -> dict[str, Any]:
    result = standing.result
    if result is None or result.plan is None or result.evaluation is None:
        return {"feasible": False, "reason": standing.reason}
    prices = result.evaluation
    return {
        "feasible": True,
        "time_per_sample_seconds": prices.time_per_sample_seconds,
        "batch_seconds": prices.batch_seconds,
        "ratio": standing.ratio,
        "devices_used": result.plan.devices_used,
        "stages": len(result.plan.stages),
        "fullest_device_bytes": max(price.memory_bytes for price in prices.stages),
        "proven_optimal": result.proven_optimal,
        "search_seconds": result.search_seconds,
    }
