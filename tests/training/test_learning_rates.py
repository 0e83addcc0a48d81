"""Learning rates by the number of the update."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.training.learning_rates import LearningRateSchedule


def test_the_rate_is_constant_unless_said_otherwise():
    """Nothing said, nothing changed."""
    assert {1.0} == {LearningRateSchedule().share(update) for update in range(100)}


def test_a_warm_up_is_linear_and_reaches_the_full_rate():
    """The first update takes one part, the last of the warm-up all."""
    schedule = LearningRateSchedule(warm_up_updates=4)

    assert [0.25, 0.5, 0.75, 1.0, 1.0] == [schedule.share(update) for update in range(5)]


@given(
    warm_up=st.integers(0, 20),
    length=st.integers(1, 50),
    final=st.floats(0, 1),
)
def test_a_cosine_falls_from_the_full_rate_to_its_end_and_stays(warm_up, length, final):
    """Monotone between its ends, in its middle at the mean of both."""
    end = warm_up + 2 * length
    schedule = LearningRateSchedule(warm_up_updates=warm_up, cosine_updates=end, final_share=final)
    shares = [schedule.share(update) for update in range(warm_up, end + 10)]

    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert math.isclose(shares[length], (1 + final) / 2)
    assert all(share == final for share in shares[2 * length :])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_up_updates": -1}, "warm_up_updates is -1"),
        ({"warm_up_updates": 5, "cosine_updates": 5}, "at least 6 would do"),
        ({"final_share": 1.5}, r"final_share is 1\.5"),
    ],
)
def test_impossible_schedules_are_refused(settings, message):
    """What is out of range is named, with what would do."""
    with pytest.raises(InputError, match=message):
        LearningRateSchedule(**settings)
