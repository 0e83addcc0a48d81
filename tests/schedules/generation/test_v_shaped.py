"""ZB-V and DualPipe-V."""

import pytest

from diaulos.schedules.actions import Kind
from diaulos.schedules.check import check
from diaulos.schedules.generators import generate
from tests.schedules.figures import timed
from tests.schedules.shapes import line, shape_for

DEPTHS = (1, 2, 3, 4, 8, 16)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", ["zb-v", "dualpipe-v"])
def test_no_bubble_after_the_first_forward(depth: int, name: str) -> None:
    """Where F, I and W take the same, a batch takes m (F + I + W) + (d-1) F / 2.

    From 2 d microbatches on.
    """
    for microbatches in (2 * depth, 2 * depth + 3, 4 * depth):
        timeline = timed(generate(name, shape_for(name, depth, microbatches), 1), 1.0, 2.0)
        assert timeline.makespan_seconds == 3 * microbatches + (depth - 1) / 2


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("microbatches", [1, 2, 5, 16, 40])
def test_memory_is_that_of_1f1b(depth: int, microbatches: int) -> None:
    """ZB-V holds 2 d halves of what 1F1B holds on its first stage, DualPipe-V one more."""
    for name, most in (("zb-v", 2 * depth), ("dualpipe-v", 2 * depth + 1)):
        timeline = timed(generate(name, shape_for(name, depth, microbatches), 1))
        peaks = [timeline.peak_in_flight(rank) for rank in range(depth)]
        assert max(peaks) <= min(most, 2 * microbatches)
        if microbatches >= 2 * depth:
            assert peaks == [most] * depth


@pytest.mark.parametrize("depth", [2, 4, 7])
@pytest.mark.parametrize("name", ["zb-v", "dualpipe-v"])
def test_few_microbatches_are_run(depth: int, name: str) -> None:
    """The surplus of the smallest full schedule is left out; no slower than 1F1B is."""
    for microbatches in range(1, 2 * depth):
        schedule = generate(name, shape_for(name, depth, microbatches), 2)
        check(schedule)
        plain = timed(generate("1f1b", line(depth, microbatches), 2))
        assert timed(schedule).makespan_seconds <= plain.makespan_seconds + 1e-9


def test_most_backwards_of_dualpipe_v_are_whole() -> None:
    """As many are split as fill its two ramps: on every rank d of 2 m."""
    depth, microbatches = 4, 12
    schedule = generate("dualpipe-v", shape_for("dualpipe-v", depth, microbatches), 1)
    for row in schedule.actions:
        kinds = [action.kind for action in row]
        assert kinds.count(Kind.INPUT_BACKWARD) == kinds.count(Kind.WEIGHT_BACKWARD)
        assert kinds.count(Kind.BACKWARD) == 2 * microbatches - kinds.count(Kind.INPUT_BACKWARD)
        assert 0 < kinds.count(Kind.INPUT_BACKWARD) < microbatches


def test_the_last_position_passes_nothing_between_its_stages() -> None:
    """At the turn of the V a stage uses what the other leaves on the same rank."""
    schedule = generate("zb-v", shape_for("zb-v", 3, 6), 1)
    sent = {(a.kind, a.stage) for a in schedule.actions[2] if a.kind.is_send}
    assert sent == {(Kind.SEND_BACKWARD, 2), (Kind.SEND_FORWARD, 3)}
