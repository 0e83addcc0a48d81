"""Parts of timelines."""

import pytest

from diaulos.errors import InputError
from diaulos.reporting.window import from_batch, shifted_events
from tests.reporting.runs import jittery, simulated


def test_a_part_begins_with_its_batch() -> None:
    """What began before the batch's first computation is left out, memory included."""
    timeline = simulated("1f1b", 2, 2, batches=3, activation_bytes=1.0)
    later = from_batch(timeline, 1)
    assert later.start_seconds == timeline.batch_ends_seconds[0]
    computations = [e.action.number for e in later.events if e.action.kind.is_compute]
    assert sorted(set(computations)) == [2, 3, 4, 5]
    assert min(point.seconds for point in later.memory) >= later.start_seconds
    assert from_batch(timeline, 0) == timeline


def test_a_part_of_2bw_keeps_what_overlaps() -> None:
    """Backwards of the batch before that begin later belong to the picture."""
    later = from_batch(simulated("2bw", 4, 4, batches=4), 2)
    numbers = {e.action.number for e in later.events if e.action.kind.is_compute}
    assert min(numbers) == 5
    assert {event.action.number for event in later.of_rank(0)[:2]} == {0, 8}


def test_a_batch_that_never_ran_is_refused() -> None:
    """The timeline is named."""
    with pytest.raises(InputError, match="timeline '1f1b' has no batch 3"):
        from_batch(simulated("1f1b", 2, 2, batches=3), 3)


def test_shifted_events_begin_at_zero() -> None:
    """A clock that counts from another day does not matter."""
    measured = jittery(simulated("1f1b", 2, 2))
    first = min(shifted_events(measured, rank)[0].start_seconds for rank in range(2))
    assert first == 0.0
    spans = [event.seconds for event in shifted_events(measured, 1)]
    assert spans == pytest.approx([event.seconds for event in measured.of_rank(1)], abs=1e-6)
