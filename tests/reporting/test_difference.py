"""Differences of runs and plans in words."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from diaulos.reporting.difference import (
    difference_document,
    order_sentences,
    step_sentence,
    time_table,
)
from diaulos.schedules.analysis.difference import difference
from tests.reporting.runs import simulated

PLANNED = simulated("1f1b", 2, 4)
SLOWER = simulated("1f1b", 2, 4, forward_seconds=1.5)


def printed(table) -> list[list[str]]:
    console = Console(width=140)
    with console.capture() as captured:
        console.print(table)
    return [row.split() for row in captured.get().splitlines()]


def test_each_row_tells_medians_and_what_they_add_to_a_step() -> None:
    """Forwards of 1.5 s instead of 1: a step of 4 microbatches and 2 stages takes 2.5 s more."""
    found = difference(PLANNED, SLOWER)
    assert step_sentence(found) == "step: 15 s planned, 17.5 s measured (+16.7%)"
    rows = printed(time_table(found))
    assert rows[1] == ["0", "forward", "1", "s", "1.5", "s", "+50.0%", "+2", "s", "80%"]
    assert rows[2] == ["0", "backward", "2", "s", "2", "s", "+0.0%", "+0", "ns", "0%"]
    assert rows[4] == ["0", "waiting", "3", "s", "3.5", "s", "+16.7%", "+500", "ms", "20%"]


def test_parts_of_no_difference_are_not_told() -> None:
    """Where a step takes as long as planned, there is nothing to share out."""
    rows = printed(time_table(difference(PLANNED, PLANNED)))
    assert {row[-1] for row in rows[1:]} == {"-"}


def test_sentences_tell_what_came_instead() -> None:
    """The rank, the place and both actions; missing ones by number and name; other weights."""
    assert order_sentences(difference(PLANNED, SLOWER)) == ["order: as planned on every rank"]
    other = order_sentences(difference(PLANNED, simulated("gpipe", 2, 4)))
    assert other[0] == "rank 0 differs in order at its computation 2: 0B0@0 was planned, 0F2@0 came"
    halves = order_sentences(difference(PLANNED, simulated("zb-h1", 2, 4)))
    assert "24 planned and not measured: 0B0@0, 0B1@0, 0B2@0, ..., 1B9@0, " not in halves
    assert halves[-2].startswith("24 planned and not measured: 0B0@0, 0B1@0, 0B2@0, ..., ")
    assert halves[-1].startswith("48 measured and not planned: ")
    steady = order_sentences(difference(PLANNED, simulated("2bw", 2, 4)))
    assert steady[-1].endswith("with another weight version, first 0F4@0 where 0F4@1 was planned")


@pytest.mark.parametrize("measured", [PLANNED, SLOWER, simulated("2bw", 2, 4)])
def test_the_document_holds_all_of_it(measured) -> None:
    """One entry for each row and each rank that differs; it is JSON."""
    found = difference(PLANNED, measured)
    document = json.loads(json.dumps(difference_document(found), allow_nan=False))
    assert len(document["times"]) == len(found.times)
    assert document["as_planned"] == found.is_as_planned
    assert document["planned_step_seconds"] == 15
    assert [order["rank"] for order in document["orders"]] == [o.rank for o in found.orders]
    assert {time["kind"] for time in document["times"]} == {
        "forward", "backward", "update", "waiting",
    }  # fmt: skip


def test_a_plan_without_time_has_no_share() -> None:
    """What takes no time in the plan cannot be told as a share of it."""
    events = tuple(e._replace(end_seconds=e.start_seconds) for e in PLANNED.events)
    found = difference(replace(PLANNED, events=events), PLANNED)
    assert found.times[0].relative is None
    assert printed(time_table(found))[1][-4] == "-"
