"""Timelines for the tests of pictures, traces and tables."""

import random
from dataclasses import replace

from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import simulate
from diaulos.schedules.timeline import Timeline


def simulated(
    name: str,
    depth: int,
    microbatches: int,
    batches: int = 3,
    width: int = 1,
    **costs: float,
) -> Timeline:
    """Equal stages, a forward of 1 s and a backward of 2 s unless the costs say otherwise."""
    stage = StageCosts(**{"forward_seconds": 1.0, "backward_seconds": 2.0, **costs})
    shape = PipelineShape(replicas=(width,) * depth, microbatches=microbatches * width)
    return simulate(generate(name, shape, batches), [stage] * depth, Link())


def jittery(timeline: Timeline, seed: int = 0) -> Timeline:
    """The timeline as a machine might measure it: later, slower, unsteady, without memory."""
    draw = random.Random(seed)
    free = [0.0] * timeline.ranks
    events = []
    for event in sorted(timeline.events, key=lambda event: event.start_seconds):
        start = max(free[event.rank], 1e9 + 1.1 * event.start_seconds) + draw.random() / 100
        free[event.rank] = start + event.seconds * (1 + draw.random() / 5)
        events.append(event._replace(start_seconds=start, end_seconds=free[event.rank]))
    return replace(timeline, events=tuple(events), memory=())
