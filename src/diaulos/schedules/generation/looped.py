"""Several stages a rank, looped: stage s on position s mod d."""

from collections.abc import Sequence

from diaulos.errors import InputError
from diaulos.schedules.actions import Kind
from diaulos.schedules.generation.completion import Order, flushed
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape


def interleaved(shape: PipelineShape, batches: range) -> Schedule:
    """Interleaved 1F1B (Narayanan et al., SC 2021), for any number of microbatches.

    Microbatches go through the chunks of a rank in rounds of d, or of a few more where d does not
    divide their number, so that there are no more rounds than full ones; what a last round lacks
    is left out. A rank warms up with 2 (d-1-r) forwards and those of v-1 chunks of a round.
    """
    local = equal_share(shape)
    depth, chunks = shape.depth, shape.chunks
    rounds = max(local // depth, 1)
    each = -(-local // rounds)
    forwards = [
        (chunk, index)
        for start in range(0, rounds * each, each)
        for chunk in range(chunks)
        for index in range(start, start + each)
    ]
    backwards = [(chunks - 1 - chunk, index) for chunk, index in forwards]

    def order_of(position: int) -> Order:
        warm_up = 2 * (depth - 1 - position) + (chunks - 1) * each
        return [
            (kind, chunk * depth + position, index)
            for kind, (chunk, index) in _one_by_one(forwards, backwards, warm_up)
            if index < local
        ]

    limits = [
        min(2 * (depth - 1 - position) + (chunks - 1) * each + 1, chunks * local)
        for position in range(depth)
    ]
    return flushed("interleaved", shape, batches, order_of=order_of, limits=limits)


def breadth_first(shape: PipelineShape, batches: range) -> Schedule:
    """Breadth-first looped pipeline (Lamy-Poirier 2023).

    All microbatches go through one chunk before the next, forwards and then backwards.
    """
    local = equal_share(shape)
    chunks = range(shape.chunks)

    def order_of(position: int) -> Order:
        stages = [chunk * shape.depth + position for chunk in chunks]
        turns = [(Kind.FORWARD, stage) for stage in stages]
        turns += [(Kind.BACKWARD, stage) for stage in reversed(stages)]
        return [(kind, stage, index) for kind, stage in turns for index in range(local)]

    limits = [shape.chunks * local] * shape.depth
    return flushed("breadth-first", shape, batches, order_of=order_of, limits=limits)


def equal_share(shape: PipelineShape) -> int:
    """The microbatches of each replica, refused where positions have other degrees than others."""
    if len(set(shape.replicas)) > 1:
        raise InputError(
            f"the stages have {shape.replicas} replicas",
            "this schedule is for stages of equal data-parallel degree",
            "gpipe, 1f1b, zb-h1 and 2bw run stages of unequal degrees",
        )
    return shape.microbatches // shape.replicas[0]


def _one_by_one(
    forwards: Sequence[tuple[int, int]], backwards: Sequence[tuple[int, int]], warm_up: int
) -> list[tuple[Kind, tuple[int, int]]]:
    warm_up = min(warm_up, len(forwards))
    order = [(Kind.FORWARD, step) for step in forwards[:warm_up]]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += [(Kind.FORWARD, forward), (Kind.BACKWARD, backward)]
    return order + [(Kind.BACKWARD, step) for step in backwards[len(forwards) - warm_up :]]
