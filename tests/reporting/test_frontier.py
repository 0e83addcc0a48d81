"""Frontiers as tables and pictures."""

import pytest

from diaulos.errors import InputError
from diaulos.planning.exact import exact
from diaulos.planning.explanation.frontier import (
    FrontierPoint,
    device_clusters,
    frontier,
    memory_clusters,
)
from diaulos.reporting.frontier import frontier_documents, frontier_svg, frontier_table
from tests.planning.problems import chain, option, problem

GIVEN = problem(chain([option(seconds=2.0, fixed=1024.0)]), memory=2048.0, microbatches=4)


def points(*sizes: float) -> tuple[FrontierPoint, ...]:
    """One layer of 1 KiB over sizes of memory."""
    return frontier(GIVEN, memory_clusters(GIVEN.cluster, sizes), exact)


def test_columns() -> None:
    """One series shows its plans, several are put side by side."""
    some = points(1024.0, 2048.0)
    single = frontier_table({"exact": some}, over_memory=True)
    several = frontier_table({"exact": some, "again": some}, over_memory=True)
    assert [column.header for column in single.columns][:3] == ["memory", "per batch", "per sample"]
    assert [column.header for column in several.columns] == ["memory", "exact", "again"]
    over_devices = frontier(GIVEN, device_clusters(GIVEN.cluster, (1, 2)), exact)
    table = frontier_table({"exact": over_devices}, over_memory=False)
    assert list(table.columns[0].cells) == ["1", "2"]
    assert list(table.columns[1].cells) == ["8 s", "4 s"]


def test_points_without_a_plan() -> None:
    """They have a reason in the document and no place in the picture."""
    series = {"exact": points(512.0, 1024.0)}
    without, found = frontier_documents(series)["exact"]
    assert (without["feasible"], found["feasible"]) == (False, True)
    assert without["reason"]
    assert "<circle" in frontier_svg(series, over_memory=True, title="one point")
    with pytest.raises(InputError, match="nothing to draw"):
        frontier_svg({"exact": points(256.0, 512.0)}, over_memory=True, title="none")
