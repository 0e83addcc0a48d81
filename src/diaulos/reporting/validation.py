"""How far estimates are from what was measured: a table, a document, and single rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from diaulos.estimating.measured.cases import Comparison, Quantity, Summary, summarise
from diaulos.estimating.measured.validate import FileComparison

_FIGURES = ("rows", "median", "mean", "bias", "held out", "ranked first", "worst")


def validation_table(files: Sequence[FileComparison]) -> Table:
    """A row for each file, quantity and group of rows; errors are shares of what was measured.

    "ranked first": of alternatives, how much slower than the measured best the one is that the
    estimates call the fastest.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("file", "quantity", "group"):
        table.add_column(heading, no_wrap=True)
    for heading in _FIGURES:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("worst row", no_wrap=True)
    for file in files:
        name = file.name
        for quantity, group, some in _groups(file):
            table.add_row(name, quantity.value, group, *_cells(some, file.excess(group)))
            name = ""
    return table


def passed_over_sentences(files: Sequence[FileComparison]) -> Iterator[str]:
    """How many rows of each file cannot be recomputed, by why."""
    for file in files:
        for reason, count in Counter(row.reason for row in file.passed_over).items():
            yield f"{file.name}: {count} rows passed over: {reason}"


def validation_document(files: Sequence[FileComparison]) -> dict[str, Any]:
    """The same as JSON, with every row."""
    return {
        "files": [
            {
                "name": file.name,
                "groups": [
                    {
                        "quantity": quantity.value,
                        "group": group,
                        **_figures(some),
                        "ranked_first_excess": file.excess(group),
                    }
                    for quantity, group, some in _groups(file)
                ],
                "rows": [_row(comparison) for comparison in file.comparisons],
                "passed_over": [asdict(row) for row in file.passed_over],
            }
            for file in files
        ]
    }


def _groups(
    file: FileComparison,
) -> Iterator[tuple[Quantity, str, Sequence[Comparison]]]:
    """The comparisons of each quantity: all of them where there are several groups, and each."""
    for quantity in Quantity:
        some = [one for one in file.comparisons if one.quantity is quantity]
        names = list(dict.fromkeys(one.group for one in some))
        if len(names) > 1:
            yield quantity, "all", some
        for name in names:
            yield quantity, name, [one for one in some if one.group == name]


def _cells(some: Sequence[Comparison], excess: float | None) -> tuple[str, ...]:
    found, held_out = summarise(some), _held_out(some)
    return (
        str(found.rows),
        f"{found.median_error:.1%}",
        f"{found.mean_error:.1%}",
        f"{found.bias:+.1%}",
        "-" if held_out is None else f"{held_out.mean_error:.1%}",
        "" if excess is None else f"{excess:+.1%}",
        f"{found.worst.error:+.1%}",
        found.worst.label,
    )


def _figures(some: Sequence[Comparison]) -> dict[str, Any]:
    found, held_out = summarise(some), _held_out(some)
    return {
        "rows": found.rows,
        "median_absolute_error": found.median_error,
        "mean_absolute_error": found.mean_error,
        "bias": found.bias,
        "held_out_rows": 0 if held_out is None else held_out.rows,
        "held_out_mean_absolute_error": None if held_out is None else held_out.mean_error,
        "worst": _row(found.worst),
    }


def _held_out(some: Sequence[Comparison]) -> Summary | None:
    """Of the rows that no constant was set by."""
    rows = [one for one in some if one.held_out]
    return summarise(rows) if rows else None


def _row(one: Comparison) -> dict[str, Any]:
    return {
        "row": one.label,
        "group": one.group,
        "quantity": one.quantity.value,
        "measured": one.measured,
        "predicted": one.predicted,
        "error": one.error,
        "held_out": one.held_out,
    }
