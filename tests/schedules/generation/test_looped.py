"""Interleaved 1F1B and breadth-first orders."""

import pytest

from diaulos.schedules.check import check
from diaulos.schedules.generators import generate
from tests.schedules.figures import boxes, drawn, timed
from tests.schedules.shapes import line

DEPTHS = (1, 2, 3, 4, 8, 16)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_interleaving_divides_the_bubble(depth: int, chunks: int) -> None:
    """With m a multiple of d a batch takes m (f + b) + (d-1)(f + b) / v, breadth-first too."""
    for rounds in (1, 2, 4):
        microbatches = rounds * depth
        for name in ("interleaved", "breadth-first"):
            timeline = timed(generate(name, line(depth, microbatches, chunks), 1))
            ideal = microbatches * 3.0
            assert timeline.makespan_seconds == pytest.approx(ideal + (depth - 1) * 3.0 / chunks)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_stashes_of_interleaving(depth: int, chunks: int) -> None:
    """Rank r holds 2(d-r-1) + (v-1)d + 1 chunks of microbatches, or all where that is more."""
    for microbatches in (depth, 2 * depth, 4 * depth):
        timeline = timed(generate("interleaved", line(depth, microbatches, chunks), 2))
        assert [timeline.peak_in_flight(rank) for rank in range(depth)] == [
            min(2 * (depth - rank - 1) + (chunks - 1) * depth + 1, chunks * microbatches)
            for rank in range(depth)
        ]


def test_breadth_first_holds_all() -> None:
    """Every microbatch of every chunk is in flight at the turn."""
    timeline = timed(generate("breadth-first", line(4, 8, 2), 1))
    assert [timeline.peak_in_flight(rank) for rank in range(4)] == [16] * 4


FIGURE_OF_INTERLEAVING = """
f0 f1 F0 F1 f2 .  B0 B0 f3 B1 B1 F2 b0 b0 F3 b1 b1 .  B2 B2 .  B3 B3 b2 b2 b3 b3
.  f0 f1 F0 B0 B0 F1 B1 B1 f2 b0 b0 f3 b1 b1 F2 B2 B2 F3 B3 B3 b2 b2 b3 b3 .  .
"""
"""Depth 2, 2 chunks, 4 microbatches; a forward of a chunk takes 1 second, a backward 2."""


def test_interleaving_box_by_box() -> None:
    """The two groups of microbatches go through the chunks in turn, as in figure 4 of Megatron."""
    timeline = timed(generate("interleaved", line(2, 4, 2), 1), forward=2.0, backward=4.0)
    assert boxes(timeline, until=27.0, chunks=2) == drawn(FIGURE_OF_INTERLEAVING)


BREADTH_FIRST = """
f0 f1 F0 F1 .  .  B0 B0 B1 B1 b0 b0 b1 b1
.  f0 f1 F0 F1 B0 B0 B1 B1 b0 b0 b1 b1 .
"""


def test_breadth_first_box_by_box() -> None:
    """One chunk after the other, forwards and backwards."""
    timeline = timed(generate("breadth-first", line(2, 2, 2), 1), forward=2.0, backward=4.0)
    found = boxes(timeline, until=15.0, chunks=2)
    for rank, row in enumerate(BREADTH_FIRST.strip().splitlines()):
        order = [box for (at, _), box in sorted(found.items()) if at == rank]
        assert order == list(dict.fromkeys(word for word in row.split() if word != "."))


@pytest.mark.parametrize("microbatches", [1, 2, 3, 5, 7, 9, 11, 14, 15])
def test_counts_that_depth_does_not_divide_are_run(microbatches: int) -> None:
    """At most one round more than full ones; never slower than without chunks."""
    for depth, chunks in ((4, 2), (4, 3), (2, 4), (8, 2)):
        schedule = generate("interleaved", line(depth, microbatches, chunks), 2)
        check(schedule)
        plain = timed(generate("1f1b", line(depth, microbatches), 2))
        assert timed(schedule).makespan_seconds <= plain.makespan_seconds + 1e-9
