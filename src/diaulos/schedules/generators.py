"""The schedules by name: each a small pure function from a pipeline's shape to action lists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from diaulos.errors import InputError
from diaulos.schedules.generation.endless import (
    pipedream,
    pipedream_vertical_sync,
    two_buffered_weights,
)
from diaulos.schedules.generation.flushed import gpipe, one_forward_one_backward
from diaulos.schedules.generation.looped import breadth_first, interleaved
from diaulos.schedules.generation.v_shaped import dualpipe_v, zero_bubble_v
from diaulos.schedules.generation.zero_bubble import zero_bubble_h1, zero_bubble_h2
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """A way to make schedules, and the pipelines that it is for."""

    schedule: Callable[[PipelineShape, range], Schedule]
    chunks: int | None = 1
    """Stages of a rank; None where any number will do."""
    folded: bool = False
    """Whether the stages stand in a V."""
    flushes: bool = True
    """Whether nothing is in flight between batches."""

    def shape(self, base: PipelineShape, chunks: int) -> PipelineShape:
        """The shape of these replicas and microbatches that the schedule runs on.

        `chunks` is taken where any number will do.
        """
        fixed = chunks if self.chunks is None else self.chunks
        return replace(base, chunks=fixed, folded=self.folded)


GENERATORS: Mapping[str, Generator] = MappingProxyType(
    {
        "gpipe": Generator(schedule=gpipe),
        "1f1b": Generator(schedule=one_forward_one_backward),
        "interleaved": Generator(schedule=interleaved, chunks=None),
        "breadth-first": Generator(schedule=breadth_first, chunks=None),
        "2bw": Generator(schedule=two_buffered_weights, flushes=False),
        "pipedream": Generator(schedule=pipedream, flushes=False),
        "pipedream-vertical": Generator(schedule=pipedream_vertical_sync, flushes=False),
        "zb-h1": Generator(schedule=zero_bubble_h1),
        "zb-h2": Generator(schedule=zero_bubble_h2),
        "zb-v": Generator(schedule=zero_bubble_v, chunks=2, folded=True),
        "dualpipe-v": Generator(schedule=dualpipe_v, chunks=2, folded=True),
    }
)
"""The schedules by the names that files and flags use."""


def generate(name: str, shape: PipelineShape, batches: int, first_batch: int = 0) -> Schedule:
    """The schedule of this name for a pipeline of this shape."""
    if name not in GENERATORS:
        raise InputError(f"there is no schedule {name!r}", f"there are {', '.join(GENERATORS)}")
    if batches < 1:
        raise InputError(f"batches is {batches}", "it must be at least 1")
    generator = GENERATORS[name]
    fitting = generator.shape(shape, shape.chunks)
    if fitting != shape:
        raise InputError(
            f"chunks is {shape.chunks} and folded is {shape.folded}",
            f"schedule {name} has {fitting.chunks} stages a rank, "
            f"{'in a V' if fitting.folded else 'not in a V'}",
            f"chunks={fitting.chunks} and folded={fitting.folded} would do",
        )
    return generator.schedule(shape, range(first_batch, first_batch + batches))
