"""One forward, one backward: the order that most schedules are made of."""

from collections.abc import Iterator

from diaulos.schedules.actions import Kind
from diaulos.schedules.generation.assembly import Step


def alternating(stage: int, microbatches: int, warm_up: int) -> Iterator[Step]:
    """Warm up with forwards, alternate one forward and one backward, drain the backwards."""
    warm_up = min(warm_up, microbatches)
    for index in range(warm_up):
        yield Kind.FORWARD, stage, index
    for index in range(microbatches - warm_up):
        yield Kind.FORWARD, stage, index + warm_up
        yield Kind.BACKWARD, stage, index
    for index in range(microbatches - warm_up, microbatches):
        yield Kind.BACKWARD, stage, index
