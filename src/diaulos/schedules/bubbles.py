"""Why ranks are idle: the bubble of a schedule by its causes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diaulos.schedules.actions import Kind
from diaulos.schedules.costs import Link, Links, StageCosts
from diaulos.schedules.simulate import Simulator
from diaulos.schedules.timeline import Event, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Idle shares of all ranks' time, from the first start to the last end; their sum is all."""

    fill: float
    """Before a rank's first backward, of each batch where batches are flushed."""
    drain: float
    """After its last forward, of each batch where batches are flushed."""
    imbalance: float
    """In between: it waits for slower stages."""
    link: float
    """What would not be idle if messages took no time."""


def bubble_by_cause(
    simulator: Simulator, costs: Sequence[StageCosts], links: Links, timeline: Timeline
) -> Bubble:
    """The bubble of a simulated timeline by its causes.

    The same schedule is simulated with messages that take no time; what is idle less is due to
    the link, and the idle time that is left is told apart by when it is.
    """
    without = timeline if links == Link() else simulator.timeline(costs, Link())
    is_flushed = simulator.schedule.is_flushed
    seconds = [0.0, 0.0, 0.0]
    for rank in range(without.ranks):
        for cause, idle in _gaps(without, rank, is_flushed=is_flushed):
            seconds[cause] += idle
    whole = timeline.makespan_seconds * timeline.ranks
    fill, drain, imbalance = (part / whole if whole else 0.0 for part in seconds)
    known = fill + drain + imbalance
    rest = 0.0 if without is timeline else max(timeline.bubble_fraction - known, 0.0)
    return Bubble(fill=fill, drain=drain, imbalance=imbalance, link=rest)


_FILL, _DRAIN, _IMBALANCE = range(3)


def _gaps(timeline: Timeline, rank: int, *, is_flushed: bool) -> Iterator[tuple[int, float]]:
    """The idle times of a rank with their causes."""

    def window(event: Event) -> int:
        if not is_flushed:
            return 0
        number = event.action.number
        return number if event.action.kind.is_of_batch else number // timeline.microbatches

    events = timeline.of_rank(rank)
    filled: dict[int, float] = {}
    fed: dict[int, float] = {}
    for event in events:
        if event.action.kind.gives_gradient:
            filled.setdefault(window(event), event.start_seconds)
        elif event.action.kind is Kind.FORWARD:
            fed[window(event)] = event.end_seconds
    before = timeline.start_seconds
    for event in events:
        idle, now = event.start_seconds - before, window(event)
        if idle > 0:
            is_draining = before >= fed[now]
            is_filling = event.start_seconds <= filled[now]
            yield _FILL if is_filling else _DRAIN if is_draining else _IMBALANCE, idle
        before = max(before, event.end_seconds)
    yield _DRAIN, timeline.start_seconds + timeline.makespan_seconds - before
