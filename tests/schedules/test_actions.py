"""Actions and their text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind, parse_action

numbers = st.integers(0, 10**9)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    kind = draw(st.sampled_from(Kind))
    version = draw(st.none() | numbers) if kind.is_compute else None
    return Action(draw(numbers), kind, draw(numbers), version)


@given(action=actions())
def test_an_action_is_what_its_text_says(action: Action) -> None:
    """Parsing the text of an action gives the action."""
    assert parse_action(str(action)) == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("2F0", Action(2, Kind.FORWARD, 0)),
        ("0F9@1", Action(0, Kind.FORWARD, 9, 1)),
        ("1B3@0", Action(1, Kind.BACKWARD, 3, 0)),
        ("1I3@0", Action(1, Kind.INPUT_BACKWARD, 3, 0)),
        ("1W3", Action(1, Kind.WEIGHT_BACKWARD, 3)),
        ("0SEND_F5", Action(0, Kind.SEND_FORWARD, 5)),
        ("1RECV_F5", Action(1, Kind.RECEIVE_FORWARD, 5)),
        ("1SEND_B3", Action(1, Kind.SEND_BACKWARD, 3)),
        ("0RECV_B3", Action(0, Kind.RECEIVE_BACKWARD, 3)),
        ("3REDUCE2", Action(3, Kind.REDUCE, 2)),
        ("0UPDATE4", Action(0, Kind.UPDATE, 4)),
    ],
)
def test_texts_are_these(text: str, action: Action) -> None:
    """The text form of each kind is fixed, in both directions."""
    assert str(action) == text
    assert parse_action(f" {text} ") == action


@pytest.mark.parametrize("text", ["", "F0", "2X0", "2F", "-1F0", "2F0@", "2F0@x", "2F0 1B0", "2F٣"])
def test_other_texts_are_refused(text: str) -> None:
    """What is not an action is named, with examples that are."""
    with pytest.raises(InputError, match="is not an action") as caught:
        parse_action(text)
    assert repr(text) in str(caught.value)
    assert "2F0, 1SEND_B3 or 0UPDATE4" in str(caught.value)


@pytest.mark.parametrize("text", ["0SEND_F5@1", "0UPDATE4@0", "0REDUCE1@2"])
def test_only_computations_have_a_version(text: str) -> None:
    """A version on a message or an update is refused."""
    with pytest.raises(InputError, match="only forwards and backwards have one"):
        parse_action(text)


@given(number=numbers, stage=st.integers(1, 99))
def test_a_receive_knows_its_send(number: int, stage: int) -> None:
    """Activations come from the stage before, gradients from the stage after."""
    forward = Action(stage, Kind.RECEIVE_FORWARD, number)
    backward = Action(stage, Kind.RECEIVE_BACKWARD, number)
    assert forward.matching_send() == Action(stage - 1, Kind.SEND_FORWARD, number)
    assert backward.matching_send() == Action(stage + 1, Kind.SEND_BACKWARD, number)


@given(first=actions(), second=actions())
def test_equal_actions_hash_equally(first: Action, second: Action) -> None:
    """Actions are values: sets and dictionaries find them by what they say."""
    assert len({first, parse_action(str(first)), second}) == (1 if first == second else 2)
