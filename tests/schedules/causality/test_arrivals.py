"""What arrivals prove about a rank's own messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.causality.arrivals import sends_proven_by
from diaulos.schedules.causality.order import execution_order
from diaulos.schedules.generators import generate
from diaulos.schedules.shape import PipelineShape
from tests.schedules.shapes import schedules


@given(schedule=schedules())
def test_what_is_proven_has_happened(schedule):
    """In an order in which everything happens as late as it can, proven sends have been taken."""
    shape = schedule.shape
    proven = [sends_proven_by(schedule, rank) for rank in range(shape.ranks)]
    taken = set()
    for rank, action in execution_order(schedule):
        if action.kind.is_receive:
            taken.add(action.matching_send())
            assert taken.issuperset(proven[rank].get(action, ()))


def _most_held(schedule, rank):
    """The most sends of a rank that no arrival has proven yet, batches not counted."""
    proven, held, most = sends_proven_by(schedule, rank), set(), 0
    for action in schedule.actions[rank]:
        if action.kind.is_send:
            held.add(action)
        held -= set(proven.get(action, ()))
        most = max(most, len(held))
    return most


@pytest.mark.parametrize("name", ["1f1b", "2bw"])
@pytest.mark.parametrize("microbatches", [8, 64])
def test_few_messages_are_held_however_many_microbatches_there_are(name, microbatches):
    """What a rank holds of sent tensors grows with the depth, not with the microbatches."""
    depth = 4
    schedule = generate(name, PipelineShape(replicas=(1,) * depth, microbatches=microbatches), 1)
    assert all(_most_held(schedule, rank) <= 2 * depth for rank in range(depth))


def test_the_answer_to_a_forward_proves_it():
    """With two stages, the gradient of a microbatch proves that its activation has arrived."""
    schedule = generate("1f1b", PipelineShape(replicas=(1, 1), microbatches=2), 1)
    proven = sends_proven_by(schedule, 0)
    kinds = {receive.kind: sends[0].kind for receive, sends in proven.items()}
    assert kinds == {Kind.RECEIVE_BACKWARD: Kind.SEND_FORWARD}
    assert all(receive.number == sends[-1].number for receive, sends in proven.items())


@given(stage=st.integers(0, 9), number=st.integers(0, 99), forwards=st.booleans())
def test_sends_and_receives_match_each_other(stage, number, forwards):
    """The send that matches a receive is matched by that receive."""
    kind = Kind.RECEIVE_FORWARD if forwards else Kind.RECEIVE_BACKWARD
    receive = Action(stage, kind, number)
    assert receive.matching_send().matching_receive() == receive
