"""How the labels of smaller downsets grow into those of larger ones."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.covering.candidates import Candidates
from diaulos.planning.search.covering.labels import Labels, Rows, unbeaten
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.stage_costs.fixed_point import Units
from diaulos.planning.search.stage_costs.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan must stay within to be of use."""

    devices: int
    latency: float = math.inf
    """In units; labels that exceed it are dropped."""
    surely: bool = False
    """Whether stages count only if they keep to the threshold for certain."""
    keep_ties: bool = False
    """Whether labels stay that are only as good as others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How labels grow, stage by stage, and what they must stay within."""

    space: Space
    labels: Labels
    lessons: Lessons
    limits: Limits
    most_packed: Units
    """By downset: the most devices and stages that leave enough to the layers outside it."""
    latency_beyond: Units
    """By downset: the least latency of the layers outside it."""

    def take(self, found: Candidates) -> None:
        """Add the labels that begin with some candidates, whose outer downsets have none yet."""
        reach = _Reach.of(self.space, found, self.most_packed)
        for first, last in pairwise(_steps(self.space, found)):
            candidate, label = self.labels.following(found.inner[first:last])
            candidate += first
            rows = self._extended(found, reach, candidate, label)
            if len(rows):
                segment = self._segments(rows)
                self.labels.add(unbeaten(rows, segment, keep_ties=self.limits.keep_ties))

    def _segments(self, rows: Rows) -> NDArray[np.int64]:
        """Labels of one number can beat each other; they ascend with the downset."""
        segment = rows.downset
        if not self.space.problem.cluster.is_flat:
            kinds = self.space.line.kinds(rows.packed // self.space.weight)
            segment = segment * self.space.line.most_kinds + kinds
        return segment

    def _extended(
        self,
        found: Candidates,
        reach: "_Reach",
        candidate: NDArray[np.int64],
        label: NDArray[np.int64],
    ) -> Rows:
        """Each label with the candidate before it, where that can stand there and is of use."""
        space, known = self.space, self.labels.rows
        total, packed = known.total[label], known.packed[label]
        keep = (reach.first[candidate] <= total) & (total <= reach.last[candidate])
        if space.problem.cluster.is_flat:
            packed = packed + reach.packed[candidate]
            some = (keep & (packed <= reach.most_packed[candidate])).nonzero()[0]
            packed = packed[some]
        else:
            some = keep.nonzero()[0]
            places, packed = _placed(space, packed[some], found.degree[candidate[some]])
            some = some[places]
            keep = packed <= reach.most_packed[candidate[some]]
            some, packed = some[keep], packed[keep]
        candidate, label = candidate[some], label[some]
        rows = Rows.of(
            downset=found.outer[candidate],
            total=total[some] + reach.replicas[candidate],
            packed=packed,
            latency=known.latency[label],
            parent=label,
            pair=found.pair[candidate],
            degree=found.degree[candidate],
        )
        return self._exposed(rows) if space.flushes else rows

    def _exposed(self, rows: Rows) -> Rows:
        """The labels with their latencies, where these are within the limit."""
        rows = _with_latencies(self.space, rows, self.lessons)
        within = rows.latency + self.latency_beyond[rows.downset] <= self.limits.latency
        return rows.take(within)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """What labels candidates can stand before, and what they add to them."""

    first: Units
    """The least sum of data-parallel degrees behind the candidate."""
    last: Units
    replicas: Units
    packed: Units
    most_packed: Units

    @staticmethod
    def of(space: Space, found: Candidates, most_packed: Units) -> "_Reach":
        """Of some candidates, `most_packed` being that of each downset."""
        replicas = space.replicas_of[found.degree]
        return _Reach(
            first=found.first - replicas,
            last=found.last - replicas,
            replicas=replicas,
            packed=space.packed_of[found.degree],
            most_packed=most_packed[found.outer],
        )


def _steps(space: Space, found: Candidates) -> list[int]:
    """Where candidates begin whose inner downsets have all their labels by then; with the end."""
    starts = np.flatnonzero(np.diff(space.level_of[found.outer], prepend=-1))
    innermost = np.maximum.reduceat(found.inner, starts).tolist()
    outermost = found.outer[starts].tolist()
    steps, first_outer = [0], outermost[0]
    for start, inner, outer in zip(starts.tolist(), innermost, outermost, strict=True):
        if inner >= first_outer:
            steps.append(start)
            first_outer = outer
    return [*steps, len(found)]


def _placed(
    space: Space, packed: NDArray[np.int64], degree: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of some labels can stand before which ends, and what they then pack."""
    places, stages = packed // space.weight, packed % space.weight + 1
    parts = [
        (some, end * space.weight + stages[some])
        for some, _, end in space.line.placements(places, degree)
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
        lessons.replace(index, pair, in_flight[some], longer)
        deferred = space.deferred[index][outer] - space.deferred[index][inner]
        rows.latency[some] += costs.least[pair] + longer - deferred
    return rows.take(~lessons.are_refused(rows.pair, rows.degree, in_flight))
