"""Where a run differs from its plan, as tables, sentences and a document."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from diaulos.reporting.colours import KIND_NAMES
from diaulos.reporting.summary import join_some
from diaulos.schedules.actions import Action
from diaulos.schedules.analysis.difference import (
    OrderDifference,
    TimeDifference,
    TimelineDifference,
)
from diaulos.units import format_seconds

_WAITING = "waiting"


def step_sentence(found: TimelineDifference) -> str:
    """What a step was planned to take, and what it takes."""
    planned, measured = found.planned_step_seconds, found.measured_step_seconds
    share = f" ({measured / planned - 1:+.1%})" if planned else ""
    return f"step: {format_seconds(planned)} planned, {format_seconds(measured)} measured{share}"


def time_table(found: TimelineDifference) -> Table:
    """One row for each kind of action on each stage, and one for what its ranks wait.

    The last column is the part of the difference of the step that it makes; each stage's parts
    sum up to the whole.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("stage", "what", "planned", "measured", "longer", "adds to step", "part"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for time in found.times:
        relative = time.relative
        table.add_row(
            ", ".join(map(str, time.stages)),
            _WAITING if time.kind is None else KIND_NAMES[time.kind],
            format_seconds(time.planned_seconds),
            format_seconds(time.measured_seconds),
            "-" if relative is None else f"{relative:+.1%}",
            _signed(time.excess_seconds),
            _part(time, found),
        )
    return table


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"


def _part(time: TimeDifference, found: TimelineDifference) -> str:
    """Of a step that takes a thousandth more or less, parts would tell nothing."""
    if abs(found.excess_seconds) <= 1e-3 * found.planned_step_seconds:
        return "-"
    return f"{time.excess_seconds / found.excess_seconds:.0%}"


def order_sentences(found: TimelineDifference) -> list[str]:
    """What was done in another order, with other weights, or not at all; or that nothing was."""
    if found.is_as_planned:
        return ["order: as planned on every rank"]
    sentences = [
        f"rank {order.rank} differs in order at its computation {order.place}: "
        f"{order.planned} was planned, {order.measured} came"
        for order in found.orders
    ]
    for actions, what in (
        (found.only_planned, "planned and not measured"),
        (found.only_measured, "measured and not planned"),
    ):
        if actions:
            sentences.append(f"{len(actions)} {what}: {join_some(map(str, actions), most=6)}")
    if found.other_versions:
        planned, measured = found.other_versions[0]
        count = len(found.other_versions)
        sentences.append(
            f"{count} with another weight version, first {measured} where {planned} was planned"
        )
    return sentences


def difference_document(found: TimelineDifference) -> dict[str, Any]:
    """The JSON of a difference."""
    return {
        "planned_step_seconds": found.planned_step_seconds,
        "measured_step_seconds": found.measured_step_seconds,
        "as_planned": found.is_as_planned,
        "times": [_time_document(time) for time in found.times],
        "orders": [_order_document(order) for order in found.orders],
        "only_planned": _texts(found.only_planned),
        "only_measured": _texts(found.only_measured),
        "other_versions": [[str(a), str(b)] for a, b in found.other_versions],
    }


def _time_document(time: TimeDifference) -> dict[str, Any]:
    return {
        "stages": list(time.stages),
        "kind": _WAITING if time.kind is None else KIND_NAMES[time.kind],
        "planned_seconds": time.planned_seconds,
        "measured_seconds": time.measured_seconds,
        "relative": time.relative,
        "planned_step_seconds": time.planned_step_seconds,
        "measured_step_seconds": time.measured_step_seconds,
        "excess_seconds": time.excess_seconds,
    }


def _order_document(order: OrderDifference) -> dict[str, Any]:
    return {
        "rank": order.rank,
        "place": order.place,
        "planned": str(order.planned),
        "measured": str(order.measured),
    }


def _texts(actions: Sequence[Action]) -> list[str]:
    return [str(action) for action in actions]
