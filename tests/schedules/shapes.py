"""Random pipelines and schedules for property tests."""

import math

from hypothesis import strategies as st

from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import PipelineShape, Schedule

NAMES = ("gpipe", "1f1b", "2bw")


def line(depth: int, microbatches: int) -> PipelineShape:
    """A pipeline with one rank per stage."""
    return PipelineShape(replicas=(1,) * depth, microbatches=microbatches)


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
    shape = draw(shapes(most_stages, most_replicas))
    name = draw(st.sampled_from(NAMES))
    return generate(name, shape, draw(st.integers(1, 3)), draw(st.integers(0, 3)))
