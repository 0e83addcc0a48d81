"""The order in which actions can happen, and deadlocks told as circles."""

from collections import Counter

import pytest
from hypothesis import given

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.causality.order import execution_order
from diaulos.schedules.check import check
from diaulos.schedules.errors import ScheduleError
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule, parse_actions
from diaulos.schedules.shape import PipelineShape
from tests.schedules.shapes import line, schedules
from tests.schedules.test_check import with_row


def deadlock(schedule: Schedule) -> ScheduleError:
    with pytest.raises(ScheduleError, match="deadlock") as caught:
        list(execution_order(schedule))
    return caught.value


def changed(schedule: Schedule, rank: int, *changes: tuple[str, str]) -> Schedule:
    text = ",".join(map(str, schedule.actions[rank]))
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    (row,) = parse_actions(text)
    return with_row(schedule, rank, list(row))


@given(schedule=schedules())
def test_each_action_comes_after_all_that_it_waits_for(schedule: Schedule) -> None:
    """Rows keep their order, receives follow their sends, updates all reductions of the batch."""
    position = [0] * schedule.shape.ranks
    happened: set[Action] = set()
    reductions: Counter[tuple[int, int]] = Counter()
    for rank, action in execution_order(schedule):
        assert schedule.actions[rank][position[rank]] == action
        position[rank] += 1
        if action.kind.is_receive:
            assert action.matching_send() in happened
        if action.kind is Kind.UPDATE:
            stages = range(schedule.shape.stages)
            for stage in [action.stage] if schedule.updates_stage_by_stage else stages:
                ranks = schedule.shape.ranks_of(stage)
                assert reductions[stage, action.number] == len(ranks)
        if action.kind is Kind.REDUCE:
            reductions[action.stage, action.number] += 1
        happened.add(action)
    assert position == [len(row) for row in schedule.actions]


def test_a_receive_before_the_send_that_feeds_the_other_side() -> None:
    """Two ranks that wait for each other are both named, with what they stand behind."""
    schedule = changed(
        generate("1f1b", line(2, 1), 1),
        0,
        ("0SEND_F0,", ""),
        ("0RECV_B0,", "0RECV_B0,0SEND_F0,"),
    )
    error = deadlock(schedule)
    assert (error.rank, str(error.action)) == (0, "0RECV_B0")
    assert (
        "deadlock: 0RECV_B0 on rank 0 waits for 1SEND_B0 on rank 1, which stands behind 1RECV_F0; "
        "1RECV_F0 on rank 1 waits for 0SEND_F0 on rank 0, which stands behind 0RECV_B0"
    ) in str(error)
    with pytest.raises(ScheduleError, match="deadlock"):
        check(schedule)


def test_an_update_before_a_send_that_others_need() -> None:
    """An update waits for the reductions of all ranks, so it must not hold up their gradients."""
    schedule = changed(
        generate("1f1b", line(2, 1), 1), 1, ("1SEND_B0,", ""), ("1UPDATE0", "1UPDATE0,1SEND_B0")
    )
    error = deadlock(schedule)
    assert "0RECV_B0 on rank 0 waits for 1SEND_B0 on rank 1, which stands behind 1UPDATE0" in str(
        error
    )
    assert "1UPDATE0 on rank 1 waits for 0REDUCE0 on rank 0, which stands behind 0RECV_B0" in str(
        error
    )


def test_only_the_circle_is_told() -> None:
    """A rank that waits for a circle without being part of it is left out."""
    schedule = changed(
        generate("1f1b", line(3, 2), 1),
        1,
        ("1SEND_F0,", ""),
        ("1RECV_B0,", "1RECV_B0,1SEND_F0,"),
    )
    error = deadlock(schedule)
    assert error.rank == 1
    assert "1RECV_B0 on rank 1 waits for 2SEND_B0 on rank 2" in str(error)
    assert "2RECV_F0 on rank 2 waits for 1SEND_F0 on rank 1" in str(error)
    assert "rank 0" not in str(error).splitlines()[0]


def test_a_circle_through_three_ranks() -> None:
    """Longer circles are told rank by rank."""
    schedule = changed(
        generate("1f1b", line(3, 1), 1), 2, ("2SEND_B0,", ""), ("2UPDATE0", "2UPDATE0,2SEND_B0")
    )
    told = str(deadlock(schedule))
    assert "0RECV_B0 on rank 0 waits for 1SEND_B0 on rank 1" in told
    assert "1RECV_B0 on rank 1 waits for 2SEND_B0 on rank 2" in told
    assert "2UPDATE0 on rank 2 waits for 0REDUCE0 on rank 0" in told
    assert told.count("waits for") == 3


def test_what_never_comes_is_said_so() -> None:
    """A receive without a send ends the story."""
    error = deadlock(changed(generate("1f1b", line(2, 1), 1), 0, ("0SEND_F0,", "")))
    assert "on rank 1, which stands behind 1RECV_F0" in str(error)
    assert "waits for 0SEND_F0 on rank 0, which never comes" in str(error)


def test_replicas_are_told_by_rank() -> None:
    """With two replicas the rank that holds the microbatch is named."""
    schedule = generate("1f1b", PipelineShape(replicas=(2, 1), microbatches=2), 1)
    schedule = changed(schedule, 1, ("0SEND_F1,", ""), ("0RECV_B1,", "0RECV_B1,0SEND_F1,"))
    assert "1RECV_F1 on rank 2 waits for 0SEND_F1 on rank 1" in str(deadlock(schedule))
