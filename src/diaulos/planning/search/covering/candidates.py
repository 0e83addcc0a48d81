"""Stages that may keep to a threshold, and where in a plan they may stand."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.covering.labels import Totals
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.fixed_point import Units
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.stages import StageCosts
from diaulos.planning.search.stage_costs.threshold import Threshold

_ROUNDING = 1e-9
_ROW = 1 << 32
_FEW = 5_000
"""So many degrees are judged at once rather than the smallest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Stages that may keep to a threshold, ordered by their outer downset.

    Candidate c may stand where the sum of data-parallel degrees from it on is between `first[c]`
    and `last[c]`. `degree` is an index of `Space.degrees`.
    """

    outer: NDArray[np.int32]
    inner: NDArray[np.int32]
    pair: NDArray[np.int64]
    degree: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pair)

    def part(self, some: slice) -> "Candidates":
        """Some of the candidates."""
        return Candidates(**{name: getattr(self, name)[some] for name in self.__slots__})


def candidates(
    space: Space,
    scope: Scope,
    threshold: Threshold,
    lessons: Lessons,
    *,
    devices: int,
    downsets: slice,
    behind: Totals,
    surely: bool = False,
) -> Candidates:
    """The stages that keep to a threshold and leave devices for all other layers.

    Those of the scope whose outer downset is among some; `behind` says which sums there are.

    Where it does not matter on which devices a stage stands and nothing is filled and drained, a
    stage needs only the smallest data-parallel degree with which it keeps to the threshold: in a
    plan on the fewest devices every stage has it, since with it a stage takes fewer devices and
    leaves fewer microbatches in flight to the stages before it.
    """
    needs = _Needs.of(space, scope, threshold, behind)
    found = []
    for index in range(len(space.settings)):
        pairs = scope.of_downsets(index, downsets)
        pairs = pairs[behind.most[space.pairs.inner[pairs]] >= 0]
        if len(pairs):
            judging = _Judging(
                space=space, threshold=threshold, lessons=lessons, setting=index, surely=surely
            )
            found.append(_of_setting(judging, pairs, needs.rooms(space, devices, pairs)))
    if not found:
        found.append((np.zeros(0, np.int64),) * 4)
    pair, degree, first, last = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(pair, kind="stable")
    pair = pair[order]
    return Candidates(
        outer=space.pairs.outer[pair],
        inner=space.pairs.inner[pair],
        pair=pair,
        degree=degree[order],
        first=first[order],
        last=last[order],
    )


def needed_devices(work: Units, threshold: Threshold) -> Units:
    """The fewest devices on which work can keep to a threshold."""
    time = float(threshold.time) * (1 + _ROUNDING)
    return np.ceil(work / time).astype(np.int64) if time > 0 else np.zeros(len(work), np.int64)


def devices_beyond(space: Space, scope: Scope, threshold: Threshold) -> Units:
    """By downset, the fewest devices that the layers outside it need."""
    if space.flushes:
        return scope.devices_beyond
    outside = space.least_work[-1] - space.least_work
    return np.maximum(scope.devices_beyond, needed_devices(outside, threshold))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rooms:
    """What the layers outside each stage leave to it."""

    devices: Units
    """That the stage can have at most."""
    before: Units
    """Least sum of data-parallel degrees behind it."""
    most_before: Units
    """Largest sum behind it."""
    most: Units
    """Largest sum with its own degree."""

    def most_with(self, rows: NDArray[np.int64], degrees: NDArray[np.int64]) -> Units:
        """The largest sum from the stages of some rows on, with these degrees."""
        most: Units = np.minimum(self.most[rows], self.most_before[rows] + degrees)
        return most

    def take(self, places: NDArray[np.int64]) -> "_Rooms":
        return _Rooms(**{name: getattr(self, name)[places] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """By downset, what its layers and those outside it need."""

    devices: Units
    devices_beyond: Units
    least_total: Units
    most_total: Units

    @staticmethod
    def of(space: Space, scope: Scope, threshold: Threshold, totals: Totals) -> "_Needs":
        """Under a threshold, with some sums of data-parallel degrees."""
        devices, replicas = scope.least_devices, scope.least_total
        if not space.flushes:
            at_work = needed_devices(space.least_work, threshold)
            devices = np.maximum(devices, at_work)
            replicas = np.maximum(replicas, -(-at_work // space.most_shards))
        return _Needs(
            devices=devices,
            devices_beyond=devices_beyond(space, scope, threshold),
            least_total=np.maximum(replicas, totals.least),
            most_total=totals.most,
        )

    def rooms(self, space: Space, devices: int, pairs: NDArray[np.int64]) -> _Rooms:
        """What is left to some stages of so many devices."""
        outer, inner = space.pairs.outer[pairs], space.pairs.inner[pairs]
        left = devices - self.devices_beyond[outer]
        return _Rooms(
            devices=left - self.devices[inner],
            before=self.least_total[inner],
            most_before=self.most_total[inner],
            most=np.minimum(left, space.replicas_limit),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judging:
    """What candidates of one setting are judged by."""

    space: Space
    threshold: Threshold
    lessons: Lessons
    setting: int
    surely: bool

    @property
    def costs(self) -> StageCosts:
        return self.space.settings[self.setting]

    def last_totals(
        self, pair: NDArray[np.int64], position: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The largest sum of degrees with which stages keep to the threshold; 0 if none does."""
        space, index = self.space, self.setting
        outer, inner = space.pairs.outer[pair], space.pairs.inner[pair]
        slack = space.budgets(self.threshold, index, outer, inner, position)
        slack -= self.costs.least[pair]
        fast = np.flatnonzero(slack >= 0)
        last = np.zeros(len(pair), np.int64)
        if not len(fast):
            return last
        within = self.costs.most_in_flight(
            outer[fast], inner[fast], slack[fast], surely=self.surely
        )
        self.lessons.lower(index, pair[fast], slack[fast], within)
        degrees = np.array(self.costs.layers.setting.data_degrees)
        last[fast] = space.last_total(within, degrees[position[fast]])
        return last


def _of_setting(
    judging: _Judging, pair: NDArray[np.int64], rooms: _Rooms
) -> tuple[NDArray[np.int64], ...]:
    """Pair, degree, first and last sum of the candidates in one setting, ordered by pair."""
    space, setting = judging.space, judging.costs.layers.setting
    degrees = np.array(setting.data_degrees)
    shards = setting.tensor_parallel
    least = np.zeros(len(pair), np.int64)
    if not space.flushes:
        needed = needed_devices(judging.costs.least[pair], judging.threshold)
        # With y in flight at most and s' behind, (s' + d) / d is at most y.
        most_behind = np.maximum(judging.costs.most_at_all[pair] - 1, 1)
        needed = np.maximum(needed, -(-rooms.before // most_behind))
        least = np.searchsorted(degrees, needed)
    end = np.searchsorted(degrees, rooms.devices // shards, side="right")
    keep = np.flatnonzero(least < end)
    if not len(keep):
        return (np.zeros(0, np.int64),) * 4
    pair, rooms, least, end = pair[keep], rooms.take(keep), least[keep], end[keep]
    if space.smallest_degree_only:
        row, position, last = _smallest_degrees(judging, pair, least, end, rooms)
        first = np.maximum(_reached_before(row, last) + 1, degrees[position])
    else:
        row, position = _ranges(least, end)
        last, first = judging.last_totals(pair[row], position), degrees[position]
    first = np.maximum(first, rooms.before[row] + degrees[position])
    last = np.minimum(last, rooms.most_with(row, degrees[position]))
    fits = np.flatnonzero(first <= last)
    place = space.first_degree[judging.setting] + position[fits]
    return pair[row[fits]], place, first[fits], last[fits]


def _smallest_degrees(
    judging: _Judging,
    pair: NDArray[np.int64],
    least: NDArray[np.int64],
    end: NDArray[np.int64],
    rooms: _Rooms,
) -> tuple[NDArray[np.int64], ...]:
    """Rows with the positions of degrees and their last sums: larger ones only where of use."""
    degrees = np.array(judging.costs.layers.setting.data_degrees)
    found = []
    left, start = np.arange(len(pair)), least
    while len(left):
        count = end[left] - start
        stop = end[left] if int(count.sum()) <= _FEW else start + 1
        place, position = _ranges(start, stop)
        row = left[place]
        last = judging.last_totals(pair[row], position)
        found.append((row, position, last))
        ends = np.append(np.flatnonzero(np.diff(place)), len(place) - 1)
        reached = last[ends] >= rooms.most_with(row[ends], degrees[position[ends]])
        goes_on = np.flatnonzero(~reached & (stop < end[left]))
        left, start = left[goes_on], stop[goes_on]
    row, position, last = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(row, kind="stable")
    return row[order], position[order], last[order]


def _ranges(
    first: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each row with each number from `first` up to `end`, which is left out; by row."""
    count = np.maximum(end - first, 0)
    row = np.repeat(np.arange(len(first)), count)
    return row, np.arange(len(row)) + (first - np.cumsum(count) + count)[row]


def _reached_before(row: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest sum that an earlier candidate of the same row reaches."""
    before = np.zeros(len(row), np.int64)
    before[1:] = np.maximum.accumulate(last + row * _ROW)[:-1]
    before -= row * _ROW
    return np.maximum(before, 0)
