"""The checker refuses every wrong schedule, and names the first wrong action."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from diaulos.errors import CheckError
from diaulos.schedules.actions import Action, Kind, parse_action
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.errors import ScheduleError
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule, parse_actions
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import simulate
from tests.schedules.ranks import runs_on_ranks
from tests.schedules.shapes import line, schedules

small = schedules(most_stages=3, most_replicas=2)


def with_row(schedule: Schedule, rank: int, row: list[Action]) -> Schedule:
    rows = list(schedule.actions)
    rows[rank] = tuple(row)
    return replace(schedule, actions=tuple(rows))


def refusal(schedule: Schedule) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        check(schedule)
    return caught.value


def place(data: st.DataObject, schedule: Schedule) -> tuple[int, int]:
    """A random rank and the index of one of its actions."""
    rank = data.draw(st.integers(0, schedule.shape.ranks - 1), label="rank")
    return rank, data.draw(st.integers(0, len(schedule.actions[rank]) - 1), label="index")


@given(schedule=small)
def test_ranks_can_run_what_is_generated(schedule: Schedule) -> None:
    """Queues without tags, banks that are overwritten and collectives suffice."""
    assert runs_on_ranks(schedule)


@given(schedule=small, data=st.data())
def test_a_dropped_action_is_missed(schedule: Schedule, data: st.DataObject) -> None:
    """The first wrong action is at or after the gap, and the message tells what is missing."""
    rank, index = place(data, schedule)
    row = list(schedule.actions[rank])
    dropped = row.pop(index)
    error = refusal(with_row(schedule, rank, row))
    assert error.rank == rank
    assert error.index >= index
    assert f"rank {rank}" in str(error)
    told = [str(dropped._replace(version=None))]
    if dropped.kind is Kind.UPDATE:
        told.append(f"it needs version {dropped.number + 1}, and the newest is {dropped.number}")
    if dropped.kind.ends_backward:
        told.append("are in flight, and at most")
    assert any(words in str(error) for words in told)


@given(schedule=small, data=st.data())
def test_a_doubled_action_is_refused(schedule: Schedule, data: st.DataObject) -> None:
    """An action that stands twice is named where it stands for the second time."""
    rank, index = place(data, schedule)
    row = list(schedule.actions[rank])
    later = data.draw(st.integers(index + 1, len(row)), label="later")
    row.insert(later, row[index])
    error = refusal(with_row(schedule, rank, row))
    assert (error.rank, error.index, error.action) == (rank, later, row[index])
    assert "it is done twice" in str(error)


def other_version(action: Action, _: Schedule, data: st.DataObject) -> Action:
    assume(action.kind.is_compute)
    versions = st.none() | st.integers(0, 9)
    return action._replace(version=data.draw(versions.filter(lambda v: v != action.version)))


def other_replica(action: Action, schedule: Schedule, _: st.DataObject) -> Action:
    assume(not action.kind.is_of_batch)
    degree = len(schedule.shape.ranks_of(action.stage))
    assume(degree > 1)
    within = action.number % schedule.shape.microbatches
    changed = (within // degree) * degree + (within + 1) % degree
    return action._replace(number=action.number - within + changed)


def other_stage(action: Action, schedule: Schedule, data: st.DataObject) -> Action:
    held = schedule.shape.stages_of(schedule.shape.ranks_of(action.stage)[0])
    stages = st.integers(0, schedule.shape.stages).filter(lambda stage: stage not in held)
    return action._replace(stage=data.draw(stages))


def other_batch(action: Action, schedule: Schedule, _: st.DataObject) -> Action:
    shift = schedule.batches * (1 if action.kind.is_of_batch else schedule.shape.microbatches)
    return action._replace(number=action.number + shift)


@pytest.mark.parametrize("change", [other_version, other_replica, other_stage, other_batch])
@given(schedule=small, data=st.data())
def test_a_changed_action_is_the_first_wrong_one(
    change: Callable[[Action, Schedule, st.DataObject], Action],
    schedule: Schedule,
    data: st.DataObject,
) -> None:
    """A wrong version, replica, stage or batch is named in its place."""
    rank, index = place(data, schedule)
    row = list(schedule.actions[rank])
    row[index] = change(row[index], schedule, data)
    error = refusal(with_row(schedule, rank, row))
    assert (error.rank, error.index, error.action) == (rank, index, row[index])
    assert f">>{row[index]}<<" in str(error)


@given(schedule=small, data=st.data())
def test_a_moved_action_is_refused_unless_ranks_can_run_it(
    schedule: Schedule, data: st.DataObject
) -> None:
    """The checker agrees with ranks and queues; what it accepts the simulator brings to its end."""
    rank, index = place(data, schedule)
    row = list(schedule.actions[rank])
    action = row.pop(index)
    reach = data.draw(st.sampled_from([1, 2, len(row)]), label="reach")
    target = st.integers(max(index - reach, 0), min(index + reach, len(row)))
    row.insert(data.draw(target, label="target"), action)
    moved = with_row(schedule, rank, row)
    if runs_on_ranks(moved):
        event("legal")
        check(moved)
        costs = [StageCosts(forward_seconds=1, backward_seconds=2)] * moved.shape.stages
        computations = sum(
            not (a.kind.is_send or a.kind.is_receive) for r in moved.actions for a in r
        )
        reductions = moved.batches * moved.shape.ranks * moved.shape.chunks
        assert len(simulate(moved, costs, Link()).events) == computations - reductions
    else:
        event("illegal")
        error = refusal(moved)
        assert str(error.action) in str(error)


@given(schedule=small, data=st.data())
def test_two_exchanged_actions_are_refused_unless_ranks_can_run_them(
    schedule: Schedule, data: st.DataObject
) -> None:
    """The same for two actions of a rank that change places."""
    rank, first = place(data, schedule)
    row = list(schedule.actions[rank])
    second = data.draw(st.integers(0, len(row) - 1), label="second")
    row[first], row[second] = row[second], row[first]
    exchanged = with_row(schedule, rank, row)
    if runs_on_ranks(exchanged):
        check(exchanged)
    else:
        refusal(exchanged)


def edited(schedule: Schedule, rank: int, before: str, after: str) -> Schedule:
    """The schedule with a piece of one row's text replaced."""
    text = ",".join(map(str, schedule.actions[rank]))
    assert before in text
    (row,) = parse_actions(text.replace(before, after, 1))
    return with_row(schedule, rank, list(row))


@pytest.mark.parametrize(
    "case",
    [
        ("1f1b", 1, "1RECV_F0,1F0@0", "1F0@0,1RECV_F0", "1F0@0", "1RECV_F0 must come first"),
        ("1f1b", 0, "0F0@0,0SEND_F0", "0SEND_F0,0F0@0", "0SEND_F0", "0F0 must come first"),
        ("1f1b", 0, "0RECV_B0,0B0@0", "0B0@0,0RECV_B0", "0B0@0", "0RECV_B0 must come first"),
        ("1f1b", 1, "1F0@0,1B0@0", "1B0@0,1F0@0", "1B0@0", "1F0 must come first"),
        ("1f1b", 1, "1B0@0,1SEND_B0", "1SEND_B0,1B0@0", "1SEND_B0", "1B0 must come first"),
        ("1f1b", 0, "0B1@0,0REDUCE0", "0REDUCE0,0B1@0", "0REDUCE0", "0B1 must come first"),
        ("1f1b", 0, "0REDUCE0,0UPDATE0", "0UPDATE0,0REDUCE0", "0UPDATE0", "0REDUCE0 must come"),
        ("1f1b", 0, "0UPDATE0,0F2@1", "0F2@1,0UPDATE0", "0F2@1", "it needs version 1, and the new"),
        ("2bw", 0, "0REDUCE2,", "", "0UPDATE2", "0REDUCE2 must come first"),
        ("2bw", 0, "0B2@0", "0B2@1", "0B2@1", "microbatch 2 computes with version 0"),
        ("1f1b", 0, "0F1@0", "0F1@0,0F7@3", "0F7@3", "microbatch 7 is in no batch"),
        ("1f1b", 0, "0F0@0", "0RECV_F0,0F0@0", "0RECV_F0", "stage 0 has no such neighbour"),
        ("1f1b", 0, "0UPDATE2", "0UPDATE9", "0UPDATE9", "there is no batch 9"),
        ("1f1b", 0, "0UPDATE0", "1UPDATE0", "1UPDATE0", "rank 0 holds stage 0"),
        ("1f1b", 1, "1UPDATE2", "1REDUCE2", "1REDUCE2", "it is done twice"),
        (
            "zb-h1",
            0,
            "0W0@0",
            "0B0@0",
            "0B0@0",
            "the backward of microbatch 0 is done whole and in",
        ),
        (
            "zb-h1",
            1,
            "1I1@0",
            "1B1@0",
            "1W1@0",
            "the backward of microbatch 1 is done whole and in",
        ),
        ("zb-h1", 0, "0I0@0", "0W0@0", "0W0@0", "0I0 must come first"),
        ("zb-h1", 0, "0RECV_B0,0I0@0", "0I0@0,0RECV_B0", "0I0@0", "0RECV_B0 must come first"),
        ("zb-h1", 0, "0W1@0,0REDUCE0", "0REDUCE0,0W1@0", "0REDUCE0", "0W1 must come first"),
        ("zb-h1", 1, "1W0@0,", "", "1REDUCE0", "1W0 must come first"),
        ("pipedream", 0, "0F2@1", "0F2@2", "0F2@2", "microbatch 2 computes with version 1"),
        ("pipedream", 0, "0UPDATE0,", "", "0F2@1", "it needs version 1, and the newest is 0"),
    ],
)
def test_the_first_wrong_action_is_named(case: tuple[str, int, str, str, str, str]) -> None:
    """Each rule has its sentence; the row is shown with a mark at the action."""
    name, rank, before, after, wrong, problem = case
    error = refusal(edited(generate(name, line(2, 2), 3), rank, before, after))
    assert error.action == parse_action(wrong)
    assert f"schedule {name!r}, rank {rank}, action {error.index}, {wrong}: {problem}" in str(error)
    assert f">>{wrong}<<" in str(error)


def test_stages_of_one_rank_wait_for_each_other() -> None:
    """At the turn of a V the second stage needs what the first has done on the same rank."""
    schedule = generate("zb-v", line(2, 4, chunks=2, folded=True), 1)
    error = refusal(edited(schedule, 1, "1F0@0,2F0@0", "2F0@0,1F0@0"))
    assert "2F0@0: 1F0 must come first" in str(error)
    error = refusal(edited(schedule, 1, "2I0@0", "1I0@0"))
    assert "2I0 must come first" in str(error) or "2B0 must come first" in str(error)


def test_ranks_of_several_stages_are_told() -> None:
    """Which stages a rank holds, and which microbatches of which stage are in flight."""
    schedule = generate("interleaved", line(2, 4, chunks=2), 1)
    error = refusal(edited(schedule, 0, "0F0@0", "1F0@0"))
    assert "1F0@0: rank 0 holds stages 0, 2" in str(error)
    error = refusal(replace(schedule, in_flight_limits=(2, 9)))
    assert "microbatches 0 of stage 0, 0 of stage 2, 1 of stage 0 are in flight" in str(error)


def test_every_action_of_a_large_schedule_is_seen() -> None:
    """A wrong version deep in a row of a schedule with several stages a rank is named."""
    schedule = generate("interleaved", line(8, 64, chunks=3), 2)
    row = list(schedule.actions[5])
    index = max(i for i, action in enumerate(row) if action.kind is Kind.FORWARD)
    row[index] = row[index]._replace(version=0)
    error = refusal(with_row(schedule, 5, row))
    assert (error.rank, error.index) == (5, index)


def test_what_is_missing_at_the_end_is_named() -> None:
    """Where a row ends too early the message says what it lacks."""
    error = refusal(edited(generate("1f1b", line(2, 2), 1), 0, ",0UPDATE0", ""))
    assert error.action is None
    assert "the end of its actions: 0UPDATE0 is missing" in str(error)
    assert ">>(end)<<" in str(error)


def test_more_in_flight_than_promised_is_refused() -> None:
    """GPipe's order breaks the promise of 1F1B."""
    schedule = generate("gpipe", line(2, 4), 1)
    error = refusal(replace(schedule, in_flight_limits=(2, 1)))
    assert str(error.action) == "0F2@0"
    assert "microbatches 0, 1, 2 are in flight, and at most 2 are promised" in str(error)


def test_a_version_in_use_is_not_overwritten() -> None:
    """Under 2BW an update waits until the last microbatch on the old version is back."""
    schedule = generate("2bw", line(2, 2), 4)
    text = ",".join(map(str, schedule.actions[0]))
    early = text.replace(",0UPDATE1", "", 1).replace("0B3@0,", "0UPDATE1,0B3@0,", 1)
    (row,) = parse_actions(early)
    error = refusal(with_row(schedule, 0, list(row)))
    assert str(error.action) == "0UPDATE1"
    assert "0REDUCE1 must come first" in str(error)
    keeps_one = replace(schedule, gradient_delays=(0, 0))
    assert "computes with version 1" in str(refusal(keeps_one))


def test_a_forward_on_a_replaced_version_is_refused() -> None:
    """A forward that comes after an update too many is told which version is gone."""
    schedule = generate("2bw", line(1, 1), 3)
    assert [str(action) for action in schedule.actions[0]] == [
        *("0F0@0", "0B0@0", "0REDUCE0", "0F1@0", "0B1@0", "0REDUCE1"),
        *("0UPDATE0", "0F2@1", "0B2@1", "0REDUCE2", "0UPDATE1", "0UPDATE2"),
    ]
    (row,) = parse_actions(
        "0F0@0,0B0@0,0REDUCE0,0F1@0,0B1@0,0REDUCE1,0UPDATE0,0UPDATE1,0F2@1,0B2@1,0REDUCE2,0UPDATE2"
    )
    check(with_row(schedule, 0, list(row)))  # two banks still hold versions 1 and 2
    flushed = generate("1f1b", line(1, 1), 2)
    (row,) = parse_actions("0F0@0,0F1@1,0B0@0,0REDUCE0,0UPDATE0,0B1@1,0REDUCE1,0UPDATE1")
    error = refusal(with_row(replace(flushed, in_flight_limits=(2,)), 0, list(row)))
    assert "it needs version 1, and the newest is 0" in str(error)


def test_gradients_of_two_batches_do_not_mix() -> None:
    """A batch is handed over before the next batch's gradients are added."""
    schedule = generate("2bw", line(1, 2), 2)
    moved = edited(schedule, 0, "0REDUCE0,0F2@0,0B2@0", "0F2@0,0B2@0,0REDUCE0")
    error = refusal(moved)
    assert str(error.action) == "0B2@0"
    assert "0REDUCE0 must come first" in str(error)


def test_links_keep_the_order_of_sends() -> None:
    """Receives in another order than the sends are refused: messages carry no tags."""
    schedule = generate("gpipe", line(2, 2), 1)
    text = ",".join(map(str, schedule.actions[1]))
    first, second = "1RECV_F0,1F0@0", "1RECV_F1,1F1@0"
    (row,) = parse_actions(text.replace(f"{first},{second}", f"{second},{first}"))
    error = refusal(with_row(schedule, 1, list(row)))
    assert str(error.action) == "1RECV_F1"
    assert "rank 0 sends 0SEND_F0 first on this link" in str(error)


def test_wrong_sizes_are_refused() -> None:
    """Rows and limits must be those of the shape."""
    schedule = generate("1f1b", PipelineShape(replicas=(1, 2), microbatches=2), 1)
    with pytest.raises(CheckError, match=r"2 rows of actions; stages of .* need 3"):
        check(replace(schedule, actions=schedule.actions[:2]))
    with pytest.raises(CheckError, match=r"1 in-flight limits; stages of .* need 2"):
        check(replace(schedule, in_flight_limits=(1,)))
