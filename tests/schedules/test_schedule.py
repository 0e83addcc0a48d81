"""The pipeline's shape, the promises of a schedule, and its text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule, format_actions, parse_actions
from tests.schedules.shapes import line, schedules


@given(schedule=schedules())
def test_actions_are_what_their_text_says(schedule: Schedule) -> None:
    """Parsing the printed rows of a schedule gives its actions."""
    assert parse_actions(format_actions(schedule)) == schedule.actions


def test_the_text_has_one_row_per_rank() -> None:
    """The text of a small schedule, in full."""
    text = format_actions(generate("1f1b", line(2, 1), 1))
    assert text == (
        "0F0@0,0SEND_F0,0RECV_B0,0B0@0,0REDUCE0,0UPDATE0\n"
        "1RECV_F0,1F0@0,1B0@0,1SEND_B0,1REDUCE0,1UPDATE0\n"
    )


def test_a_wrong_text_is_named_with_its_row() -> None:
    """A cell that is no action is reported with the row it stands in; empty rows are rows."""
    with pytest.raises(InputError, match="row 1: 'what' is not an action"):
        parse_actions("0F0@0\n1F0@0,what\n")
    assert parse_actions("\n0F0@0\n")[0] == ()


@given(schedule=schedules(), microbatch=st.integers(0, 10**6))
def test_versions_follow_the_law(schedule: Schedule, microbatch: int) -> None:
    """Batch t computes with version max(t - delay, 0), of which delay + 1 are kept."""
    batch = math.floor(microbatch / schedule.shape.microbatches)
    for stage, delay in enumerate(schedule.gradient_delays):
        assert schedule.version_of(stage, microbatch) == max(batch - delay, 0)
        assert schedule.weight_versions[stage] == delay + 1
