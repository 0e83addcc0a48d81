"""How the first wrong action is shown."""

from dataclasses import replace

from diaulos.schedules.errors import ScheduleError, marked_table
from diaulos.schedules.generators import generate
from tests.schedules.shapes import line


def test_the_table_is_rank_by_step() -> None:
    """The actions around the wrong one, those of other ranks at the same step, and a mark."""
    schedule = generate("1f1b", line(2, 1), 1)
    assert [line.split() for line in marked_table(schedule, 1, 2).splitlines()] == [
        ["step", *map(str, range(7))],
        ["rank", "0", "0F0@0", "0SEND_F0", "0RECV_B0", "0B0@0", "0REDUCE0", "0UPDATE0"],
        ["rank", "1", "1RECV_F0", "1F0@0", ">>1B0@0<<", "1SEND_B0", "1REDUCE0", "1UPDATE0"],
    ]
    starts = [line.rindex(word) for line, word in zip(
        marked_table(schedule, 1, 2).splitlines(), ("3", "0B0", "1SEND_B0"), strict=True
    )]  # fmt: skip
    assert len(set(starts)) == 1


def test_only_ranks_nearby_are_shown() -> None:
    """Of many ranks three on either side; the end of a row is marked as such."""
    schedule = generate("1f1b", line(9, 2), 1)
    shown = marked_table(schedule, 8, len(schedule.actions[8]))
    assert [text.split()[1] for text in shown.splitlines()[1:]] == ["5", "6", "7", "8"]
    assert ">>(end)<<" in shown


def test_the_message_names_rank_index_and_action() -> None:
    """Also where the row has ended."""
    schedule = replace(generate("1f1b", line(1, 1), 1), name="by hand")
    error = ScheduleError(schedule, 0, 1, "this is wrong")
    assert str(error).startswith("schedule 'by hand', rank 0, action 1, 0B0@0: this is wrong\n")
    end = ScheduleError(schedule, 0, 4, "something is missing")
    assert (end.action, end.rank, end.index) == (None, 0, 4)
    assert "rank 0, the end of its actions: something is missing" in str(end)
