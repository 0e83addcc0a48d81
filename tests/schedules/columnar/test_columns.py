"""Actions as columns of numbers."""

from hypothesis import given

from diaulos.schedules.actions import Kind
from diaulos.schedules.columnar.columns import NO_PARTNER, NO_VERSION
from diaulos.schedules.schedule import Schedule
from tests.schedules.shapes import schedules

BY_CODE = {kind.code: kind for kind in Kind}


@given(schedule=schedules())
def test_columns_hold_the_actions(schedule: Schedule) -> None:
    """Entry by entry, rank after rank."""
    columns = schedule.columns
    entries = zip(
        columns.rank, columns.stage, columns.kind, columns.number, columns.version, strict=True
    )
    expected = [(rank, action) for rank, row in enumerate(schedule.actions) for action in row]
    for index, (entry, (rank, action)) in enumerate(zip(entries, expected, strict=True)):
        version = NO_VERSION if action.version is None else action.version
        assert entry == (rank, action.stage, action.kind.code, action.number, version)
        assert BY_CODE[entry[2]] is action.kind
        place = columns.place(index)
        assert schedule.actions[place[0]][place[1]] is action


@given(schedule=schedules())
def test_messages_have_two_ends(schedule: Schedule) -> None:
    """Each send knows its receive and each receive its send; nothing else has a partner."""
    actions = [action for row in schedule.actions for action in row]
    for action, partner in zip(actions, schedule.partners.tolist(), strict=True):
        if action.kind.is_send:
            assert actions[partner] == action.matching_receive()
        elif action.kind.is_receive:
            assert actions[partner] == action.matching_send()
        else:
            assert partner == NO_PARTNER
