"""Actions put together as columns are those that are put together one by one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import completed
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape

BACKWARDS = ((Kind.BACKWARD,), (Kind.INPUT_BACKWARD, Kind.WEIGHT_BACKWARD))


def one_by_one(empty: Schedule, rank: int, order: Iterable[Step]) -> Iterator[Action]:
    """The actions of a rank, as they are described."""
    shape, stop = empty.shape, empty.batch_numbers.stop
    each = len(shape.microbatches_of(rank, 0))
    made = dict.fromkeys(shape.stages_of(rank), empty.first_batch)
    ended = dict.fromkeys(shape.stages_of(rank), 0)

    def updates(stage: int, version: int) -> Iterator[Action]:
        while made[stage] < version:
            yield Action(stage, Kind.UPDATE, made[stage])
            made[stage] += 1

    for kind, stage, number in order:
        version = empty.version_of(stage, number)
        if kind is Kind.FORWARD:
            yield from updates(stage, version)
        is_fed = stage > 0 and shape.is_handed_over(stage - 1)
        feeds = shape.is_handed_over(stage)
        if kind is Kind.FORWARD and is_fed:
            yield Action(stage, Kind.RECEIVE_FORWARD, number)
        if kind.gives_gradient and feeds:
            yield Action(stage, Kind.RECEIVE_BACKWARD, number)
        yield Action(stage, kind, number, version)
        if kind is Kind.FORWARD and feeds:
            yield Action(stage, Kind.SEND_FORWARD, number)
        if kind.gives_gradient and is_fed:
            yield Action(stage, Kind.SEND_BACKWARD, number)
        ended[stage] += kind.ends_backward
        if kind.ends_backward and ended[stage] % each == 0:
            batch = empty.first_batch + ended[stage] // each - 1
            yield Action(stage, Kind.REDUCE, batch)
            if empty.updates_stage_by_stage:
                yield from updates(stage, batch + 1)
    for stage in shape.stages_of(rank):
        yield from updates(stage, stop)


@st.composite
def orders(draw: st.DrawFn) -> tuple[Schedule, list[Sequence[Step]]]:
    """Promises, and computations in any order: what stands around them asks for no sense."""
    degrees = draw(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=3))
    shape = PipelineShape(
        replicas=tuple(degrees),
        microbatches=2 * draw(st.integers(1, 2)),
        chunks=draw(st.integers(1, 3)),
        folded=draw(st.booleans()),
    )
    empty = Schedule(
        name="any",
        shape=shape,
        first_batch=draw(st.integers(0, 2)),
        batches=draw(st.integers(1, 3)),
        gradient_delays=tuple(draw(st.integers(0, 2)) for _ in range(shape.stages)),
        updates_stage_by_stage=draw(st.booleans()),
        in_flight_limits=(1,) * shape.depth,
        actions=(),
    )
    rows: list[Sequence[Step]] = []
    for rank in range(shape.ranks):
        steps = [
            (kind, stage, number)
            for batch in empty.batch_numbers
            for number in shape.microbatches_of(rank, batch)
            for stage in shape.stages_of(rank)
            for kind in (Kind.FORWARD, *draw(st.sampled_from(BACKWARDS)))
        ]
        rows.append(draw(st.permutations(steps))[: draw(st.integers(0, len(steps)))])
    return empty, rows


@given(orders())
def test_columns_hold_what_is_put_together_one_by_one(
    drawn: tuple[Schedule, list[Sequence[Step]]],
) -> None:
    """All kinds of actions stand where their description says, for any order of computations."""
    empty, rows = drawn
    found = completed(empty, rows)
    assert found.actions == tuple(
        tuple(one_by_one(empty, rank, order)) for rank, order in enumerate(rows)
    )


@given(orders())
def test_rows_are_the_tuples_of_their_actions(
    drawn: tuple[Schedule, list[Sequence[Step]]],
) -> None:
    """Rows that are made when they are read have the same columns as their tuples."""
    schedule = completed(*drawn)
    listed = replace(schedule, actions=tuple(schedule.actions))
    assert listed == schedule
    assert hash(listed) == hash(schedule)
    assert schedule.actions[:1] == tuple(schedule.actions)[:1]
    for name in ("starts", "rank", "stage", "kind", "number", "version"):
        ours, theirs = getattr(schedule.columns, name), getattr(listed.columns, name)
        assert list(ours) == list(theirs), name
