"""Random pipelines and schedules for property tests."""

import math

from hypothesis import strategies as st

from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape

NAMES = ("gpipe", "1f1b", "2bw")
"""Schedules whose ranks all reach their in-flight limits."""
UNEQUAL = (*NAMES, "zb-h1")
"""Schedules that run stages of unequal degrees."""


def line(depth: int, microbatches: int, chunks: int = 1, *, folded: bool = False) -> PipelineShape:
    """A pipeline with one rank per position."""
    return PipelineShape(
        replicas=(1,) * depth, microbatches=microbatches, chunks=chunks, folded=folded
    )


def shape_for(name: str, depth: int, microbatches: int, chunks: int = 2) -> PipelineShape:
    """A pipeline with one rank per position for a schedule of this name."""
    return GENERATORS[name].shape(line(depth, microbatches), chunks)


def fewest_rounds(replicas: list[int]) -> int:
    """The fewest times the least common multiple for which every schedule runs.

    2BW needs ceil(s / d) - 1 microbatches on each replica, s being the replicas from there on.
    """
    common = math.lcm(*replicas)
    needed = [
        (-(-sum(replicas[stage:]) // degree) - 1) * degree for stage, degree in enumerate(replicas)
    ]
    return max(1, *(-(-count // common) for count in needed))


@st.composite
def shapes(draw: st.DrawFn, most_stages: int = 4, most_replicas: int = 3) -> PipelineShape:
    """A pipeline of equal or unequal stages with enough microbatches for every schedule."""
    degree = st.integers(1, most_replicas)
    equal = st.tuples(degree, st.integers(1, most_stages)).map(lambda pair: [pair[0]] * pair[1])
    replicas = draw(st.one_of(equal, st.lists(degree, min_size=1, max_size=most_stages)))
    least = fewest_rounds(replicas)
    rounds = draw(st.integers(least, least + 3))
    return PipelineShape(replicas=tuple(replicas), microbatches=rounds * math.lcm(*replicas))


@st.composite
def schedules(draw: st.DrawFn, most_stages: int = 4, most_replicas: int = 3) -> Schedule:
    """A schedule of any name for a random pipeline."""
    name = draw(st.sampled_from(list(GENERATORS)))
    if name in UNEQUAL:
        shape = draw(shapes(most_stages, most_replicas))
    else:
        degree, depth = draw(st.integers(1, most_replicas)), draw(st.integers(1, most_stages))
        microbatches = draw(st.integers(1, 2 * depth + 1)) * degree
        base = PipelineShape(replicas=(degree,) * depth, microbatches=microbatches)
        shape = GENERATORS[name].shape(base, draw(st.integers(1, 3)))
    return generate(name, shape, draw(st.integers(1, 3)), draw(st.integers(0, 3)))
