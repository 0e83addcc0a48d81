"""Ranks that stop together in the middle of a schedule."""

from hypothesis import given
from hypothesis import strategies as st

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.causality.cut import actions_until
from diaulos.schedules.schedule import Schedule
from tests.schedules.shapes import schedules


def rows_until(schedule: Schedule, batch: int) -> list[tuple[Action, ...]]:
    ends = actions_until(schedule, batch)
    return [row[:end] for row, end in zip(schedule.actions, ends, strict=True)]


@given(schedule=schedules(), data=st.data())
def test_all_have_updated_and_nobody_waits(schedule: Schedule, data: st.DataObject) -> None:
    """What any rank takes its peer has sent, and what one has updated all have."""
    batch = data.draw(st.sampled_from(schedule.batch_numbers), label="batch")
    rows = rows_until(schedule, batch)
    done = {action for row in rows for action in row}

    for action in done:
        if action.kind.is_receive:
            assert action.matching_send() in done
    updates = [{a for a in row if a.kind is Kind.UPDATE} for row in rows]
    last = max(action.number for of_rank in updates for action in of_rank)
    assert last >= batch
    for row, of_rank in zip(schedule.actions, updates, strict=True):
        assert {a for a in row if a.kind is Kind.UPDATE and a.number <= last} <= of_rank


@given(schedule=schedules(), data=st.data())
def test_flushes_and_two_buffers_stop_at_the_update(
    schedule: Schedule, data: st.DataObject
) -> None:
    """Where stages update together, no rank does more than its own update."""
    if schedule.updates_stage_by_stage:
        return
    batch = data.draw(st.sampled_from(schedule.batch_numbers), label="batch")
    for row in rows_until(schedule, batch):
        assert row[-1] == Action(row[-1].stage, Kind.UPDATE, batch)
