"""ZB-H1 and ZB-H2."""

from itertools import pairwise

import pytest

from diaulos.schedules.actions import Kind
from diaulos.schedules.generators import generate
from tests.schedules.figures import boxes, drawn, timed
from tests.schedules.shapes import line

DEPTHS = (1, 2, 3, 4, 8, 16)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seconds", [(1, 1, 1), (10, 12, 9), (3, 5, 2)])
def test_h1_leaves_a_bubble_of_f_and_i_less_w(depth: int, seconds: tuple[int, int, int]) -> None:
    """A batch takes m (F + I + W) + (d-1)(F + I - W), from 2 d microbatches on."""
    forward, of_input, of_weights = seconds
    for microbatches in (2 * depth, 3 * depth + 1, 64):
        schedule = generate("zb-h1", line(depth, microbatches), 1)
        timeline = timed(schedule, forward, of_input + of_weights, of_weights)
        ideal = microbatches * sum(seconds)
        bubble = (depth - 1) * (forward + of_input - of_weights)
        assert timeline.makespan_seconds == ideal + bubble


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("seconds", [(1, 1, 1), (10, 12, 9)])
def test_h2_is_idle_only_before_the_first_forward(
    depth: int, seconds: tuple[int, int, int]
) -> None:
    """A batch takes m (F + I + W) + (d-1) F, from 2 d - 1 microbatches on."""
    forward, of_input, of_weights = seconds
    for microbatches in (2 * depth, 3 * depth + 1, 64):
        schedule = generate("zb-h2", line(depth, microbatches), 1)
        timeline = timed(schedule, forward, of_input + of_weights, of_weights)
        ideal = microbatches * sum(seconds)
        assert timeline.makespan_seconds == ideal + (depth - 1) * forward


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("microbatches", [1, 2, 5, 8, 33])
def test_stashes_are_the_same_on_all_stages(depth: int, microbatches: int) -> None:
    """H1 holds d and H2 2 d - 1 until their weight halves; with few microbatches all of them."""
    for name, most in (("zb-h1", depth), ("zb-h2", 2 * depth - 1)):
        timeline = timed(generate(name, line(depth, microbatches), 1))
        peaks = [timeline.peak_in_flight(rank) for rank in range(depth)]
        assert max(peaks) <= min(most, microbatches)
        if microbatches >= 2 * depth:
            assert peaks == [most] * depth


FIGURE_2_OF_ZERO_BUBBLE = """
f0 f1 f2 f3 .  .  .  i0 w0 f4 i1 w1 f5 i2 w2 f6 i3 w3 f7 i4 w4 i5 w5 i6 w6 i7 w7
.  f0 f1 f2 .  .  i0 f3 i1 w0 f4 i2 w1 f5 i3 w2 f6 i4 w3 f7 i5 w4 i6 w5 i7 w6 w7
.  .  f0 f1 .  i0 f2 i1 f3 i2 w0 f4 i3 w1 f5 i4 w2 f6 i5 w3 f7 i6 w4 i7 w5 w6 w7
.  .  .  f0 i0 f1 i1 f2 i2 f3 i3 w0 f4 i4 w1 f5 i5 w2 f6 i6 w3 f7 i7 w4 w5 w6 w7
"""


def test_h1_box_by_box() -> None:
    """Figure 2 of Qi et al.: 4 stages, 8 microbatches, each of the three parts takes 1 second."""
    timeline = timed(generate("zb-h1", line(4, 8), 1), 1.0, 2.0)
    assert boxes(timeline, until=28.0) == drawn(FIGURE_2_OF_ZERO_BUBBLE)


def test_gradients_of_inputs_are_sent_before_weights_are_done() -> None:
    """The send of a gradient follows the input half; the weight half sends nothing."""
    for row in generate("zb-h1", line(3, 6), 1).actions[1:]:
        for action, follower in pairwise(row):
            if action.kind is Kind.INPUT_BACKWARD:
                assert (follower.kind, follower.number) == (Kind.SEND_BACKWARD, action.number)
