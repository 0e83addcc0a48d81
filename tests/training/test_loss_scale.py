"""The loss scale of each batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.training.loss_scale import LossScale, LossScaling

SCALING = LossScaling(initial=8.0, growth_updates=2)


def _scales(overflows, delay):
    scale, seen = LossScale(SCALING, delay=delay), []
    for batch, overflowed in enumerate(overflows):
        seen.append(scale.of(batch))
        scale.decide(batch, overflowed=overflowed)
    return seen


def test_an_overflow_halves_it_and_updates_without_one_double_it():
    """Two updates in a row without an overflow, whatever was before."""
    assert _scales([False, False, True, False, False, False], 0) == [8, 8, 16, 8, 8, 16]


@given(overflows=st.lists(st.booleans(), max_size=12), delay=st.integers(0, 3))
def test_delayed_batches_have_the_scale_of_an_earlier_one(overflows, delay):
    """Batch t has the scale that batch t - delay would have without delay."""
    at_once = _scales(overflows, 0)

    assert _scales(overflows, delay) == [
        at_once[max(batch - delay, 0)] for batch in range(len(overflows))
    ]


@given(overflows=st.lists(st.booleans(), max_size=12), delay=st.integers(0, 3), stop=st.integers(0))
def test_it_goes_on_from_its_state(overflows, delay, stop):
    """Scale and skipped updates are those of the unbroken run from any decision on."""
    stop = min(stop, len(overflows))
    first, unbroken = (LossScale(SCALING, delay=delay) for _ in range(2))
    for batch in range(stop):
        first.decide(batch, overflowed=overflows[batch])
    again = LossScale(SCALING, delay=delay, decided=stop, state=first.state)
    for batch, overflowed in enumerate(overflows):
        expected = unbroken.of(batch)
        unbroken.decide(batch, overflowed=overflowed)
        if batch >= stop:
            assert again.of(batch) == expected
            again.decide(batch, overflowed=overflowed)
    assert again.state == unbroken.state
    assert again.skipped == sum(overflows)


def test_a_batch_is_decided_once():
    """Each stage of a rank says so of the same batch."""
    scale = LossScale(SCALING, delay=1)
    for _ in range(2):
        scale.decide(0, overflowed=True)

    assert scale.skipped == 1
    assert scale.of(2) == 4


def test_it_never_falls_below_one():
    """What overflows without a scale overflows."""
    assert _scales([True] * 5, 0) == [8, 4, 2, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": 3.0}, "a power of two"),
        ({"initial": 0.5}, "a power of two"),
        ({"growth_updates": 0}, "growth_updates is 0"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    """A scale that would change digits, and a growth without updates."""
    with pytest.raises(InputError, match=message):
        LossScaling(**changes)
