"""Schedules in numbers."""

import io
import json

from rich.console import Console

from diaulos.reporting.summary import (
    counted_versions,
    join_some,
    summarise,
    summary_document,
    summary_table,
)
from tests.reporting.runs import jittery, simulated


def test_a_summary_holds_the_closed_forms() -> None:
    """1F1B with 4 stages and 8 microbatches: 33 s a step, 3/11 idle, d - r in flight."""
    summary = summarise(simulated("1f1b", 4, 8, batches=2), weight_versions=[1] * 4)
    assert summary.step_seconds == 33.0
    assert summary.makespan_seconds == 66.0
    assert abs(summary.bubble_fraction - 3 / 11) < 1e-12
    assert abs(summary.step_bubble_fraction - 3 / 11) < 1e-12
    assert summary.peak_in_flight == (4, 3, 2, 1)
    assert summary.weight_versions == (1, 1, 1, 1)


def test_memory_is_told_where_it_is_known() -> None:
    """The document and the table have a place for memory only where a timeline has it."""
    without = summarise(simulated("1f1b", 2, 2), [1, 1])
    assert "peak_memory_bytes" not in summary_document(without)
    timeline = simulated("1f1b", 2, 2, activation_bytes=2.0**20, fixed_bytes=2.0**30)
    summary = summarise(timeline, [1, 1])
    assert summary_document(summary)["peak_memory_bytes"] == (2**30 + 2**21, 2**30 + 2**20)
    json.dumps(summary_document(summary))


def test_the_table_has_a_row_per_schedule() -> None:
    """Names, times, shares and counts stand in it."""
    summaries = {
        name: summarise(simulated(name, 2, 4), [versions] * 2)
        for name, versions in (("gpipe", 1), ("1f1b", 1), ("2bw", 2))
    }
    output = io.StringIO()
    Console(file=output, width=120).print(summary_table(summaries))
    rows = [line.split() for line in output.getvalue().splitlines()]
    assert [row[0] for row in rows] == ["schedule", "gpipe", "1f1b", "2bw"]
    assert rows[3] == ["2bw", "12", "s", "0.0%", "39", "s", "7.7%", "2", "2,", "1"]


def test_versions_are_counted_from_events() -> None:
    """Under 2BW two versions are alive from the first update on, with a flush one."""
    assert counted_versions(simulated("2bw", 3, 3, batches=4)) == (2, 2, 1)
    assert counted_versions(jittery(simulated("2bw", 3, 3, batches=4))) == (2, 2, 1)
    assert counted_versions(simulated("1f1b", 3, 3, batches=4)) == (1, 1, 1)
    assert counted_versions(simulated("gpipe", 3, 3, batches=1)) == (1, 1, 1)


def test_replicas_count_as_one_stage() -> None:
    """The replica that has most speaks for its stage."""
    assert summarise(simulated("2bw", 3, 4, width=2), [2] * 3).peak_in_flight == (3, 2, 1)


def test_long_lists_are_shortened() -> None:
    """Beyond 16 texts only the ends are shown."""
    assert join_some(["a", "b"]) == "a, b"
    shown = join_some([str(i) for i in range(64)])
    assert shown.startswith("0, 1, 2, 3, 4, 5, 6, 7, ..., 56")
    assert shown.endswith("63")
