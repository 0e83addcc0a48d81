"""Timelines drawn with words, as the figures of the papers."""

from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.simulate import simulate
from diaulos.schedules.timeline import Timeline


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
