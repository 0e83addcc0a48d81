"""Timelines drawn with words, as the figures of the papers."""

from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.simulate import simulate
from diaulos.schedules.timeline import Timeline

FIGURE_2_OF_2BW = """
f0 f1 f2 f3 .  .  .  .  .  .  b0 b0 f4 b1 b1 f5 b2 b2 f6 b3 b3 f7 b4 b4 f8 b5 b5 f9
.  f0 f1 f2 .  .  .  .  b0 b0 f3 b1 b1 f4 b2 b2 f5 b3 b3 f6 b4 b4 f7 b5 b5 f8 b6 b6
.  .  f0 f1 .  .  b0 b0 f2 b1 b1 f3 b2 b2 f4 b3 b3 f5 b4 b4 f6 b5 b5 f7 b6 b6 f8 b7
.  .  .  f0 b0 b0 f1 b1 b1 f2 b2 b2 f3 b3 b3 f4 b4 b4 f5 b5 b5 f6 b6 b6 f7 b7 b7 f8
"""
"""Depth 4, 4 microbatches, backward twice the forward; the paper counts inputs from 1."""

PIPEDREAM_FLUSH = """
f0 f1 f2 f3 .  .  .  .  .  .  b0 b0 .  b1 b1 .  b2 b2 .  b3 b3 f4 f5 f6 f7
.  f0 f1 f2 .  .  .  .  b0 b0 f3 b1 b1 .  b2 b2 .  b3 b3 .  .  .  f4 f5 f6
.  .  f0 f1 .  .  b0 b0 f2 b1 b1 f3 b2 b2 .  b3 b3 .  .  .  .  .  .  f4 f5
.  .  .  f0 b0 b0 f1 b1 b1 f2 b2 b2 f3 b3 b3 .  .  .  .  .  .  .  .  .  f4
"""
"""PipeDream-Flush, likewise."""


def timed(
    schedule: Schedule, forward: float = 1.0, backward: float = 2.0, weights: float | None = None
) -> Timeline:
    """Every rank takes these seconds for all its stages together."""
    cost = StageCosts(
        forward_seconds=forward, backward_seconds=backward, weight_backward_seconds=weights
    )
    chunks = schedule.shape.chunks
    return simulate(schedule, [cost.divided(chunks)] * schedule.shape.stages, Link())


def boxes(timeline: Timeline, until: float, chunks: int = 1) -> dict[tuple[int, float], str]:
    """Computations by rank and start, as f7 or b7; capital letters on the second of two chunks."""
    found = {}
    for rank in range(timeline.ranks):
        for event in timeline.of_rank(rank):
            if event.action.kind.is_compute and event.start_seconds < until:
                letter = event.action.kind.value
                is_first = event.action.stage in timeline.stages_of(rank)[:1] or chunks == 1
                letter = letter.lower() if is_first else letter
                found[rank, event.start_seconds] = f"{letter}{event.action.number}"
    return found


def drawn(figure: str) -> dict[tuple[int, float], str]:
    """The boxes of a figure: one row per worker, one word per second, dots where it is idle."""
    found = {}
    for rank, row in enumerate(figure.strip().splitlines()):
        words = row.split()
        for second, word in enumerate(words):
            if word != "." and (second == 0 or words[second - 1] != word):
                found[rank, float(second)] = word
    return found
