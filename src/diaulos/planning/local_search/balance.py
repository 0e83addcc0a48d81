"""Cuts that make the slowest stage as fast as possible, where the degrees of all stages are given.

By dynamic programming over the downsets, from the output end. Times are those of the search: never
too long, and without communication.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.local_search.outlines import Degrees, Outline, Outlines

_NEVER = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """What balances stages of some degrees; it remembers the times of stages."""

    outlines: Outlines
    _times: dict[tuple[Degrees, int], NDArray[np.int64]] = field(default_factory=dict)

    def outline(self, degrees: tuple[Degrees, ...]) -> Outline | None:
        """That of stages of these degrees; None where they cannot run all layers."""
        outlines = self.outlines
        problem = outlines.problem
        totals = problem.pipelining.totals([some.data_parallel for some in degrees])
        if not outlines.within_limits(degrees):
            return None
        slowest = np.full(len(outlines.members), _NEVER)
        slowest[0] = 0
        steps = []
        for some, total in zip(reversed(degrees), reversed(totals), strict=True):
            in_flight = problem.pipelining.in_flight(
                total, some.data_parallel, problem.microbatches
            )
            slowest, inner = self._grown(slowest, self._times_of(some, in_flight))
            steps.append(inner)
        if slowest[-1] >= _NEVER:
            return None
        cuts = [len(slowest) - 1]
        for inner in reversed(steps):
            cuts.append(int(inner[cuts[-1]]))
        return Outline(tuple(cuts), degrees)

    def even(self) -> Iterator[Outline]:
        """Those of equal degrees everywhere, for all degrees and depths.

        They pass microbatches on without waiting, which a closed form does not see.
        """
        layers = len(self.outlines.members[-1])
        for degrees in self.outlines.all_degrees:
            for depth in range(1, layers + 1):
                found = self.outline((degrees,) * depth)
                if found is not None:
                    yield found

    def _times_of(self, degrees: Degrees, in_flight: int) -> NDArray[np.int64]:
        """Per sample, of each pair at least; very long where nothing fits."""
        key = (degrees, in_flight)
        if key not in self._times:
            space = self.outlines.judge.space
            outer, inner = space.pairs.outer, space.pairs.inner
            times = np.full(len(outer), _NEVER)
            for index in self.outlines.indices_of(degrees):
                costs = space.settings[space.degrees[index].setting]
                longer = costs.least_times(outer, inner, np.full(len(outer), in_flight))
                fits = costs.possible & (longer < _NEVER // 2)
                per_sample = (costs.least + longer) // degrees.data_parallel
                times = np.where(fits, np.minimum(times, per_sample), times)
            self._times[key] = times
        return self._times[key]

    def _grown(
        self, slowest: NDArray[np.int64], times: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """With one stage more, of each downset: the least time of the slowest, and where it ends.

        Every downset but the empty one has pairs, and they stand together.
        """
        pairs = self.outlines.judge.space.pairs
        found = np.maximum(slowest[pairs.inner], times)
        least = np.full(len(slowest), _NEVER)
        least[1:] = np.minimum.reduceat(found, pairs.starts[1:-1])
        best = np.flatnonzero(found == least[pairs.outer])[::-1]
        inner = np.zeros(len(slowest), np.int64)
        inner[pairs.outer[best]] = pairs.inner[best]
        return least, inner
