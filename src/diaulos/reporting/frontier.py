"""A frontier as a table, as a document and as a picture: one series for each way to plan."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from diaulos.clusters.cluster import Cluster
from diaulos.planning.explanation.frontier import FrontierPoint
from diaulos.reporting.line_plot import Axis, line_plot
from diaulos.units import format_bytes, format_seconds

Series = Mapping[str, Sequence[FrontierPoint]]


def frontier_table(series: Series, *, over_memory: bool) -> Table:
    """A row for each cluster; of one series also what its plans are like."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    single = len(series) == 1
    headings = ["per batch", "per sample", "used", "stages", "fullest device"]
    for heading in ("memory" if over_memory else "devices", *(headings if single else series)):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in zip(*series.values(), strict=True):
        value = _value_text(row[0].cluster, over_memory=over_memory)
        cells = _plan_cells(row[0]) if single else [_seconds_text(point) for point in row]
        table.add_row(value, *cells)
    return table


def frontier_documents(series: Series) -> dict[str, list[dict[str, Any]]]:
    """The points of each series in seconds and bytes; where there is no plan, the reason."""
    return {name: [_document(point) for point in points] for name, points in series.items()}


def frontier_svg(series: Series, *, over_memory: bool, title: str, made_by: str = "") -> str:
    """A picture of time per batch on logarithmic axes; points without a plan are left out.

    An `InputError` where no point has one.
    """
    lines = {
        name: [
            (_value(point.cluster, over_memory=over_memory), point.batch_seconds)
            for point in points
            if point.batch_seconds
        ]
        for name, points in series.items()
    }
    across = (
        Axis(title="memory of each device", text=format_bytes, base=2)
        if over_memory
        else Axis(title="devices", text=lambda value: f"{value:g}", base=2)
    )
    up = Axis(title="time per batch", text=format_seconds)
    return line_plot(lines, title=title, x=across, y=up, made_by=made_by)


def _value(cluster: Cluster, *, over_memory: bool) -> float:
    return cluster.largest_memory_bytes if over_memory else cluster.devices


def _value_text(cluster: Cluster, *, over_memory: bool) -> str:
    return format_bytes(cluster.largest_memory_bytes) if over_memory else str(cluster.devices)


def _seconds_text(point: FrontierPoint) -> str:
    return "no plan" if point.batch_seconds is None else format_seconds(point.batch_seconds)


def _plan_cells(point: FrontierPoint) -> list[str]:
    plan, prices = point.result.plan, point.result.evaluation
    if plan is None or prices is None:
        return [_seconds_text(point), "-", "-", "-", "-"]
    return [
        _seconds_text(point),
        format_seconds(prices.time_per_sample_seconds),
        str(plan.devices_used),
        str(len(plan.stages)),
        format_bytes(max(price.memory_bytes for price in prices.stages)),
    ]


def _document(point: FrontierPoint) -> dict[str, Any]:
    plan, prices = point.result.plan, point.result.evaluation
    document: dict[str, Any] = {
        "devices": point.cluster.devices,
        "memory_bytes": point.cluster.largest_memory_bytes,
        "feasible": plan is not None,
    }
    if plan is None or prices is None:
        return {**document, "reason": point.result.reason}
    return {
        **document,
        "time_per_sample_seconds": prices.time_per_sample_seconds,
        "batch_seconds": prices.batch_seconds,
        "proven_optimal": point.result.proven_optimal,
        "devices_used": plan.devices_used,
        "stages": len(plan.stages),
        "fullest_device_bytes": max(price.memory_bytes for price in prices.stages),
    }
