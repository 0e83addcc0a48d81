"""Why ranks are idle: the bubble of a schedule by its causes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diaulos.schedules.actions import Kind
from diaulos.schedules.costs import Link, Links, StageCosts
from diaulos.schedules.simulate import Simulator
from diaulos.schedules.timeline import Timeline


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
    gaps = _gaps(without, is_flushed=simulator.schedule.is_flushed)
    whole = timeline.makespan_seconds * timeline.ranks
    fill, drain, imbalance = (part / whole if whole else 0.0 for part in gaps)
    known = fill + drain + imbalance
    rest = 0.0 if without is timeline else max(timeline.bubble_fraction - known, 0.0)
    return Bubble(fill=fill, drain=drain, imbalance=imbalance, link=rest)


def _gaps(timeline: Timeline, *, is_flushed: bool) -> tuple[float, float, float]:
    """How long all ranks together are idle while filling, while draining and in between."""
    moments, ranks = timeline.moments, timeline.ranks
    start, end = moments.start_seconds, moments.end_seconds
    batch = np.where(
        moments.is_kind(Kind.REDUCE, Kind.UPDATE),
        moments.number,
        moments.number // timeline.microbatches,
    )
    batch = batch - batch.min() if is_flushed else np.zeros_like(batch)
    window = moments.rank * (int(batch.max()) + 1) + batch
    filled = np.full(int(window.max()) + 1, np.inf)
    fed = np.full(len(filled), -np.inf)
    back = moments.is_kind(Kind.BACKWARD, Kind.INPUT_BACKWARD)
    ahead = moments.is_kind(Kind.FORWARD)
    np.minimum.at(filled, window[back], start[back])
    np.maximum.at(fed, window[ahead], end[ahead])
    first = np.searchsorted(moments.rank, np.arange(ranks))
    before = np.concatenate(([0.0], end[:-1]))
    before[first] = timeline.start_seconds
    idle = np.maximum(start - before, 0.0)
    is_filling = start <= filled[window]
    is_draining = ~is_filling & (before >= fed[window])
    last = end[np.append(first[1:], len(end)) - 1]
    rest = timeline.start_seconds + timeline.makespan_seconds - last
    return (
        float(idle[is_filling].sum()),
        float(idle[is_draining].sum() + rest.sum()),
        float(idle[~is_filling & ~is_draining].sum()),
    )
