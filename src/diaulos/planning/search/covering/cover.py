"""Covering all layers with stages that keep to a threshold.

For a threshold, `Cover.of` finds for each downset the labels that none beats: on the fewest devices
(then with the fewest stages), with the least sum of data-parallel degrees, which leaves the fewest
microbatches in flight to the stages before, and where a batch is filled and drained with the least
latency. Downsets are taken by their number of layers, all of one size at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.covering.candidates import Candidates, candidates, devices_beyond
from diaulos.planning.search.covering.growth import Growth, Limits
from diaulos.planning.search.covering.labels import Labels
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.covering.placement import Placement
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold

_PAIRS_AT_ONCE = 5_000
_NONE = 2**62


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
        labels = Labels(space.line.first_ends() * space.weight)
        most_devices = limits.devices - devices_beyond(space, scope, threshold)
        growth = Growth(
            space=space,
            labels=labels,
            lessons=lessons,
            limits=limits,
            most_packed=(most_devices + 1) * space.weight - 1,
            latency_beyond=space.least_latency[-1] - space.least_latency,
        )
        used = []
        for downsets in _blocks(space, scope):
            found = candidates(
                space,
                scope,
                threshold,
                lessons,
                devices=limits.devices,
                downsets=downsets,
                behind=labels.totals(len(space.downsets), known=downsets.start),
                surely=limits.surely,
            )
            if len(found):
                growth.take(found)
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

    def scope(self) -> Scope:
        """What can still matter under a lower threshold: all that stands in some plan here."""
        space, labels = self.space, self.labels
        least_total, least_packed = labels.least(len(space.downsets))
        beyond = np.full(len(space.downsets), _NONE)
        beyond[-1] = 0
        most = (self.limits.devices + 1) * space.weight - 1
        pairs, degrees = [], []
        for some in by_size(space, self.candidates):
            packed = beyond[some.outer] + space.packed_of[some.degree]
            total = least_total[some.inner] + space.replicas_of[some.degree]
            useful = np.flatnonzero(
                (packed + least_packed[some.inner] <= most) & (total <= some.last)
            )
            np.minimum.at(beyond, some.inner[useful], packed[useful])
            pairs.append(some.pair[useful])
            degrees.append(some.degree[useful])
        return Scope.of(
            space,
            _by_setting(space, np.concatenate(pairs), np.concatenate(degrees)),
            least_devices=least_packed // space.weight,
            least_total=least_total,
            devices_beyond=beyond // space.weight,
        )

    def complete(self) -> NDArray[np.int64]:
        """The labels of plans: those that run all layers."""
        return self.labels.of(len(self.space.downsets) - 1)

    def fewest(self) -> NDArray[np.int64]:
        """The labels of plans on the fewest devices, then with the fewest stages."""
        complete = self.complete()
        packed = self.labels.rows.packed[complete]
        best: NDArray[np.int64] = complete[packed == packed.min(initial=_NONE)]
        return best

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
        space, rows = self.space, self.labels.rows
        degree = int(rows.degree[label])
        begin, end = (int(rows.packed[i]) // space.weight for i in (rows.parent[label], label))
        if not space.problem.cluster.is_flat:
            end = space.line.end_of(begin, degree, end)
        return Placement(
            pair=int(rows.pair[label]),
            degree=degree,
            in_flight=space.in_flight(int(rows.total[label]), degree),
            end=end,
        )


def _by_setting(
    space: Space, pairs: NDArray[np.int64], degrees: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """The pairs that occur in each setting, once each and ascending."""
    setting_of = space.setting_of[degrees]
    return [np.unique(pairs[setting_of == index]) for index in range(len(space.settings))]


def by_size(space: Space, candidates: Sequence[Candidates]) -> Iterator[Candidates]:
    """The candidates by the size of their outer downset, largest first."""
    for found in reversed(candidates):
        level = space.level_of[found.outer]
        ends = [0, *(np.flatnonzero(np.diff(level)) + 1).tolist(), len(level)]
        for last, first in pairwise(reversed(ends)):
            yield found.part(slice(first, last))


def _blocks(space: Space, scope: Scope) -> Iterator[slice]:
    """Ranges of downsets by size, each with not too many pairs."""
    levels, counts = space.downsets.level_starts, scope.counts()
    first = 1
    for end in levels[2:].tolist():
        if counts[end] - counts[first] > _PAIRS_AT_ONCE or end == len(space.downsets):
            yield slice(first, end)
            first = end
