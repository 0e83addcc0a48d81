"""Covering all layers with stages that keep to a threshold.

For a threshold, `Cover.of` finds for each downset the labels that none beats: on the fewest devices
(then with the fewest stages), with the least sum of data-parallel degrees, which leaves the fewest
microbatches in flight to the stages before, and where a batch is filled and drained with the least
latency. Downsets are taken by their number of layers, all of one size at once.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.candidates import (
    Candidates,
    candidates,
    needed_devices,
)
from diaulos.planning.search.fixed_point import Units
from diaulos.planning.search.labels import Labels, Rows, unbeaten
from diaulos.planning.search.lessons import Lessons
from diaulos.planning.search.placement import Placement
from diaulos.planning.search.scope import Scope
from diaulos.planning.search.space import Space
from diaulos.planning.search.threshold import Threshold

_PAIRS_AT_ONCE = 500_000
_NONE = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan must stay within to be of use."""

    devices: int
    latency: float = math.inf
    """In units; labels that exceed it are dropped."""
    stages: int | None = None
    """Plans have so many, where it is given."""
    surely: bool = False
    """Whether stages count only if they keep to the threshold for certain."""
    keep_ties: bool = False
    """Whether labels stay that are only as good as others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """The labels of all downsets under a threshold, and the candidates that they are made of."""

    space: Space
    labels: Labels
    candidates: tuple[Candidates, ...]
    threshold: Threshold
    limits: Limits

    @staticmethod
    def of(
        space: Space, scope: Scope, threshold: Threshold, lessons: Lessons, limits: Limits
    ) -> "Cover":
        """All labels under a threshold that stay within the limits."""
        labels = Labels(len(space.downsets), space.line.first_ends() * space.weight)
        beyond = _least_beyond(space, threshold, limits)
        used = []
        for downsets in _blocks(space, scope):
            alive = labels.count > 0
            alive[downsets] = True
            pairs = scope.of_downsets(downsets)
            pairs = pairs[alive[space.pairs.inner[pairs]]]
            found = candidates(
                space,
                threshold,
                lessons,
                devices=limits.devices,
                pairs=pairs,
                surely=limits.surely,
            )
            if found is not None:
                _grow(space, labels, found, beyond, lessons, limits)
                used.append(found)
        return Cover(
            space=space,
            labels=labels,
            candidates=tuple(used),
            threshold=threshold,
            limits=limits,
        )

    def __len__(self) -> int:
        return sum(map(len, self.candidates))

    def useful(self) -> NDArray[np.int64]:
        """The pairs that stand in some plan under the threshold, and perhaps others.

        With a lower threshold no other pair can stand in a plan.
        """
        space, labels = self.space, self.labels
        least_total, least_packed = labels.least(len(space.downsets))
        beyond = np.full(len(space.downsets), _NONE)
        beyond[-1] = 0
        most = (self.limits.devices + 1) * space.weight - 1
        pairs = []
        for some in by_size(space, self.candidates):
            packed = beyond[some.outer] + space.packed_of[some.degree]
            total = least_total[some.inner] + space.replicas_of[some.degree]
            useful = np.flatnonzero(
                (packed + least_packed[some.inner] <= most) & (total <= some.last)
            )
            np.minimum.at(beyond, some.inner[useful], packed[useful])
            pairs.append(some.pair[useful])
        return np.unique(np.concatenate(pairs))

    def complete(self) -> NDArray[np.int64]:
        """The labels of plans: those that run all layers, in as many stages as wanted."""
        labels = self.labels.of(len(self.space.downsets) - 1)
        if self.limits.stages is None:
            return labels
        return labels[self.labels.rows.packed[labels] % self.space.weight == self.limits.stages]

    def fewest(self) -> NDArray[np.int64]:
        """The labels of plans on the fewest devices, then with the fewest stages."""
        complete = self.complete()
        packed = self.labels.rows.packed[complete]
        return complete[packed == packed.min(initial=_NONE)]

    def plan(self) -> tuple[Placement, ...] | None:
        """One on the fewest devices, then with the fewest stages; None where there is none."""
        best = self.fewest()
        return self.placements(int(best[0])) if len(best) else None

    def placements(self, label: int) -> tuple[Placement, ...]:
        """The stages of a label, from the input end."""
        found = []
        while label >= self.labels.first:
            found.append(self.placement(label))
            label = int(self.labels.rows.parent[label])
        return tuple(found)

    def placement(self, label: int) -> Placement:
        """The first stage of a label."""
        rows = self.labels.rows
        degree = int(rows.degree[label])
        return Placement(
            pair=int(rows.pair[label]),
            degree=degree,
            in_flight=self.space.in_flight(int(rows.total[label]), degree),
            end=int(rows.packed[label]) // self.space.weight,
        )


def by_size(space: Space, candidates: Sequence[Candidates]) -> Iterator[Candidates]:
    """The candidates by the size of their outer downset, largest first."""
    for found in reversed(candidates):
        level = space.level_of[found.outer]
        ends = [0, *np.flatnonzero(np.diff(level)) + 1, len(level)]
        for first, last in zip(ends[-2::-1], ends[:0:-1], strict=True):
            yield found.part(slice(first, last))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beyond:
    """What the layers outside each downset take at least."""

    packed: Units
    """The most devices and stages that a label can have."""
    latency: Units


def _least_beyond(space: Space, threshold: Threshold, limits: Limits) -> _Beyond:
    if space.flushes:
        before = (np.arange(len(space.downsets))[::-1] > 0).astype(np.int64)
    else:
        before = needed_devices(space.least_work[-1] - space.least_work, threshold)
    return _Beyond(
        packed=(limits.devices - before) * space.weight + space.weight - 1,
        latency=space.least_latency[-1] - space.least_latency,
    )


def _blocks(space: Space, scope: Scope) -> Iterator[slice]:
    """Ranges of downsets by size, each with not too many pairs."""
    levels, starts = space.downsets.level_starts, scope.starts
    first = 1
    for end in levels[2:].tolist():
        if starts[end] - starts[first] > _PAIRS_AT_ONCE or end == len(space.downsets):
            yield slice(first, end)
            first = end


def _grow(
    space: Space,
    labels: Labels,
    found: Candidates,
    beyond: _Beyond,
    lessons: Lessons,
    limits: Limits,
) -> None:
    """Add the labels that end with some candidates, whose outer downsets have none yet."""
    level = space.level_of[found.outer]
    ends = np.flatnonzero(np.diff(level)) + 1
    for first, last in zip([0, *ends], [*ends, len(level)], strict=True):
        place, label = labels.following(found.inner[first:last])
        if not len(place):
            continue
        rows = _extended(space, labels, found, place + first, label, lessons)
        keep = rows.packed <= beyond.packed[rows.downset]
        if limits.stages is not None:
            is_last = rows.downset == len(space.downsets) - 1
            keep &= rows.packed % space.weight <= limits.stages - ~is_last
        if space.flushes:
            keep &= rows.latency + beyond.latency[rows.downset] <= limits.latency
        rows = rows.take(np.flatnonzero(keep))
        if len(rows):
            segment = rows.downset
            if limits.stages is not None:
                segment = segment * space.weight + rows.packed % space.weight
            if not space.problem.cluster.is_flat:
                kinds = space.line.kinds(rows.packed // space.weight)
                segment = segment * space.line.most_kinds + kinds
            labels.add(unbeaten(rows, segment, keep_ties=limits.keep_ties))


def _extended(
    space: Space,
    labels: Labels,
    found: Candidates,
    candidate: NDArray[np.int64],
    label: NDArray[np.int64],
    lessons: Lessons,
) -> Rows:
    """Each label with the candidate before it, where that can stand there."""
    known = labels.rows
    degree = found.degree[candidate]
    total = known.total[label] + space.replicas_of[degree]
    keep = np.flatnonzero((found.first[candidate] <= total) & (total <= found.last[candidate]))
    candidate, label, degree, total = candidate[keep], label[keep], degree[keep], total[keep]
    packed = known.packed[label]
    if space.problem.cluster.is_flat:
        packed = packed + space.packed_of[degree]
    else:
        some, packed = _placed(space, packed, degree)
        candidate, label, degree, total = candidate[some], label[some], degree[some], total[some]
    rows = Rows.of(
        downset=found.outer[candidate],
        total=total,
        packed=packed,
        latency=known.latency[label],
        parent=label,
        pair=found.pair[candidate],
        degree=degree,
    )
    return _with_latencies(space, rows, lessons) if space.flushes else rows


def _placed(
    space: Space, packed: NDArray[np.int64], degree: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of some labels can stand before which ends, and what they then pack."""
    places, stages = packed // space.weight, packed % space.weight + 1
    parts = [
        (some, end * space.weight + stages[some])
        for some, end in space.line.placements(places, degree)
    ]
    some, packed = (np.concatenate(column) for column in zip(*parts, strict=True))
    return some, packed


def _with_latencies(space: Space, rows: Rows, lessons: Lessons) -> Rows:
    """The labels with what their first stages add to filling and draining, at least."""
    in_flight = space.numbers_in_flight(rows.total, rows.degree)
    settings = space.setting_of[rows.degree]
    for index in np.unique(settings).tolist():
        some, costs = np.flatnonzero(settings == index), space.settings[index]
        pair = rows.pair[some]
        outer, inner = space.pairs.outer[pair], space.pairs.inner[pair]
        longer = costs.least_times(outer, inner, in_flight[some])
        lessons.replace(index, space.contents(pair), in_flight[some], longer)
        deferred = space.deferred[index][outer] - space.deferred[index][inner]
        rows.latency[some] += costs.least[pair] + longer - deferred
    return rows.take(~lessons.are_refused(rows.pair, rows.degree, in_flight))
