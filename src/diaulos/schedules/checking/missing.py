"""What a rank should do and does not."""

from collections.abc import Iterator

import numpy as np

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.checking.facts import Facts
from diaulos.schedules.columnar.columns import Flags


def first_missing(facts: Facts) -> tuple[int, Action] | None:
    """The lowest rank that lacks something, and the first action that it lacks."""
    shape = facts.shape
    candidates: list[tuple[int, int, int, int, Action]] = []
    for order, (kind, lacking) in enumerate(_lacking(facts)):
        if not lacking.any():
            continue
        for stage, slot in np.argwhere(lacking).tolist():
            number = facts.schedule.microbatch_numbers[slot]
            place = (shape.rank_of(stage, number), number // shape.microbatches, order, number)
            candidates.append((*place, Action(stage, kind, number)))
    for order, kind in enumerate((Kind.REDUCE, Kind.UPDATE), start=len(Kind)):
        for seat, slot in np.argwhere(facts.first_of_batch(kind) == facts.absent).tolist():
            rank, chunk = divmod(seat, shape.chunks)
            batch = facts.schedule.batch_numbers[slot]
            candidates.append(
                (rank, batch, order, batch, Action(shape.stages_of(rank)[chunk], kind, batch))
            )
    if not candidates:
        return None
    first = min(candidates, key=lambda candidate: candidate[:4])
    return first[0], first[4]


def _lacking(facts: Facts) -> Iterator[tuple[Kind, Flags]]:
    """What is absent and should not be, by stage and microbatch; kind by kind."""
    is_begun = facts.gradient < facts.absent
    fed = np.concatenate(([False], facts.feeds[:-1]))[:, None]
    feeds = facts.feeds[:, None]

    def absent(kind: Kind) -> Flags:
        flags: Flags = facts.first(kind) == facts.absent
        return flags

    yield Kind.FORWARD, absent(Kind.FORWARD)
    yield Kind.BACKWARD, ~is_begun & absent(Kind.WEIGHT_BACKWARD)
    yield Kind.INPUT_BACKWARD, ~is_begun & ~absent(Kind.WEIGHT_BACKWARD)
    yield Kind.WEIGHT_BACKWARD, is_begun & (facts.end == facts.absent)
    yield Kind.RECEIVE_FORWARD, fed & absent(Kind.RECEIVE_FORWARD)
    yield Kind.SEND_BACKWARD, fed & absent(Kind.SEND_BACKWARD)
    yield Kind.SEND_FORWARD, feeds & absent(Kind.SEND_FORWARD)
    yield Kind.RECEIVE_BACKWARD, feeds & absent(Kind.RECEIVE_BACKWARD)
