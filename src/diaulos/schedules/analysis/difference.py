"""Where a run differs from its plan: in time by stage and kind of action, and in order by rank."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.timeline import Timeline

_Key = tuple[int, Kind, int]
"""Stage, kind and number: an action without its weight version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeDifference:
    """One kind of action on one stage, or what a stage's ranks wait."""

    stages: tuple[int, ...]
    """One stage; for the waiting all those that share a rank."""
    kind: Kind | None
    """None for the time in which the ranks do nothing."""
    planned_seconds: float
    """The median of an action; of the waiting all of a step."""
    measured_seconds: float
    planned_step_seconds: float
    """What it takes of a step: the median times how often a replica does it per batch."""
    measured_step_seconds: float

    @property
    def excess_seconds(self) -> float:
        """What it adds to a measured step over the planned one."""
        return self.measured_step_seconds - self.planned_step_seconds

    @property
    def relative(self) -> float | None:
        """By what share of the plan it takes longer; None where nothing was planned."""
        if self.planned_seconds == 0:
            return None
        return self.measured_seconds / self.planned_seconds - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDifference:
    """The first place at which a rank did not compute what was planned.

    Updates may come earlier or later, as long as the computations use the planned weights.
    """

    rank: int
    place: int
    """How many computations before it are the same."""
    planned: Action
    measured: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDifference:
    """A measured timeline beside the planned one."""

    planned_step_seconds: float
    measured_step_seconds: float
    times: tuple[TimeDifference, ...]
    """By stage and kind; the waiting of a stage's ranks comes after its actions."""
    orders: tuple[OrderDifference, ...]
    """Of each rank that computes what both timelines have in another order, the first place."""
    only_planned: tuple[Action, ...]
    """Computations of microbatches that both timelines have, which only the plan has."""
    only_measured: tuple[Action, ...]
    other_versions: tuple[tuple[Action, Action], ...]
    """Computations that use another weight version, planned and measured."""

    @property
    def excess_seconds(self) -> float:
        """By how much a measured step is longer."""
        return self.measured_step_seconds - self.planned_step_seconds

    @property
    def is_as_planned(self) -> bool:
        """Whether all is computed that was planned, in its order, with its weights."""
        return not (self.orders or self.only_planned or self.only_measured or self.other_versions)


def difference(planned: Timeline, measured: Timeline) -> TimelineDifference:
    """Where the measured timeline differs from the planned one.

    Times are compared by medians, so that a slow beginning does not count; orders over the
    actions that both have, so that one may have more batches. Raises `InputError` where the two
    are not of one pipeline.
    """
    _require_same_pipeline(planned, measured)
    only_planned, only_measured = _missing(planned, measured), _missing(measured, planned)
    return TimelineDifference(
        planned_step_seconds=planned.step_seconds,
        measured_step_seconds=measured.step_seconds,
        times=tuple(_time_differences(planned, measured)),
        orders=tuple(_order_differences(planned, measured)),
        only_planned=only_planned,
        only_measured=only_measured,
        other_versions=tuple(_version_differences(planned, measured)),
    )


def _require_same_pipeline(planned: Timeline, measured: Timeline) -> None:
    for what, found, other in (
        ("ranks", planned.ranks, measured.ranks),
        ("microbatches a batch", planned.microbatches, measured.microbatches),
        ("stages by rank", _stages(planned), _stages(measured)),
    ):
        if found != other:
            raise InputError(
                f"{what}: {found} planned and {other} measured",
                "a run is compared with the plan that it followed",
            )


def _stages(timeline: Timeline) -> list[tuple[int, ...]]:
    return [timeline.stages_of(rank) for rank in range(timeline.ranks)]


def _time_differences(planned: Timeline, measured: Timeline) -> Iterator[TimeDifference]:
    positions: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, stages in enumerate(_stages(planned)):
        positions[stages].append(rank)
    for stages, ranks in sorted(positions.items()):
        found = [
            time
            for stage in stages
            for kind in Kind
            if (time := _time_of(planned, measured, ranks, stage, kind)) is not None
        ]
        yield from found
        busy = (
            sum(time.planned_step_seconds for time in found),
            sum(time.measured_step_seconds for time in found),
        )
        yield _waiting(stages, planned.step_seconds - busy[0], measured.step_seconds - busy[1])


def _time_of(
    planned: Timeline, measured: Timeline, ranks: list[int], stage: int, kind: Kind
) -> TimeDifference | None:
    """One kind of action on one stage; None where neither timeline has it."""
    usual, count = _usual(planned, ranks, stage, kind)
    measured_usual, measured_count = _usual(measured, ranks, stage, kind)
    if count == measured_count == 0:
        return None
    return TimeDifference(
        stages=(stage,),
        kind=kind,
        planned_seconds=usual,
        measured_seconds=measured_usual,
        planned_step_seconds=usual * count,
        measured_step_seconds=measured_usual * measured_count,
    )


def _waiting(
    stages: tuple[int, ...], planned_seconds: float, measured_seconds: float
) -> TimeDifference:
    """What is left of a step; medians may sum up to a little more than one."""
    planned_seconds, measured_seconds = max(planned_seconds, 0.0), max(measured_seconds, 0.0)
    return TimeDifference(
        stages=stages,
        kind=None,
        planned_seconds=planned_seconds,
        measured_seconds=measured_seconds,
        planned_step_seconds=planned_seconds,
        measured_step_seconds=measured_seconds,
    )


def _usual(timeline: Timeline, ranks: list[int], stage: int, kind: Kind) -> tuple[float, float]:
    """The median seconds of an action, and how often a replica does it per batch."""
    seconds = [
        event.seconds
        for rank in ranks
        for event in timeline.of_rank(rank)
        if event.action.kind is kind and event.action.stage == stage
    ]
    batches = max(len(timeline.batch_ends_seconds), 1)
    return (median(seconds), len(seconds) / len(ranks) / batches) if seconds else (0.0, 0.0)


def _by_key(timeline: Timeline, rank: int) -> dict[_Key, Action]:
    """The computations of a rank in the order of time."""
    actions = (event.action for event in timeline.of_rank(rank))
    return {_key(action): action for action in actions if action.kind.is_compute}


def _key(action: Action) -> _Key:
    return action.stage, action.kind, action.number


def _order_differences(planned: Timeline, measured: Timeline) -> Iterator[OrderDifference]:
    for rank in range(planned.ranks):
        expected, found = _by_key(planned, rank), _by_key(measured, rank)
        pairs = zip(
            (action for key, action in expected.items() if key in found),
            (action for key, action in found.items() if key in expected),
            strict=True,
        )
        for place, (first, second) in enumerate(pairs):
            if _key(first) != _key(second):
                yield OrderDifference(rank=rank, place=place, planned=first, measured=second)
                break


def _version_differences(planned: Timeline, measured: Timeline) -> Iterator[tuple[Action, Action]]:
    for rank in range(planned.ranks):
        found = _by_key(measured, rank)
        for key, action in _by_key(planned, rank).items():
            if key in found and found[key].version != action.version:
                yield action, found[key]


def _missing(timeline: Timeline, other: Timeline) -> tuple[Action, ...]:
    """Computations that the other timeline lacks, though it has their microbatch."""
    there = [_by_key(other, rank) for rank in range(other.ranks)]
    numbers = {number for keys in there for _, _, number in keys}
    return tuple(
        action
        for rank in range(timeline.ranks)
        for key, action in _by_key(timeline, rank).items()
        if action.number in numbers and key not in there[rank]
    )
