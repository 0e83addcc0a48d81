"""Stages that may keep to a threshold, and where in a plan they may stand."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.fixed_point import Units
from diaulos.planning.search.lessons import Lessons
from diaulos.planning.search.space import Space
from diaulos.planning.search.stages import StageCosts
from diaulos.planning.search.threshold import Threshold

_ROUNDING = 1e-9
_ROW = 1 << 32


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
    threshold: Threshold,
    lessons: Lessons,
    *,
    devices: int,
    pairs: NDArray[np.int64],
    surely: bool = False,
) -> Candidates | None:
    """The stages among some pairs that keep to a threshold and leave devices for all other layers.

    Where it does not matter on which devices a stage stands and nothing is filled and drained, a
    stage needs only the smallest data-parallel degree with which it keeps to the threshold: in a
    plan on the fewest devices every stage has it, since with it a stage takes fewer devices and
    leaves fewer microbatches in flight to the stages before it.
    """
    outer, inner = space.pairs.outer[pairs], space.pairs.inner[pairs]
    spare = _spare_devices(space, threshold, devices, outer, inner)
    found = [
        part
        for index, stages in enumerate(space.settings)
        for part in _of_setting(
            space, threshold, lessons, index, stages, pairs, spare, surely=surely
        )
    ]
    if not found:
        return None
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    pair, degree, first, last = (column for column in columns)
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


def _spare_devices(
    space: Space,
    threshold: Threshold,
    devices: int,
    outer: NDArray[np.int32],
    inner: NDArray[np.int32],
) -> Units:
    """What the layers outside each stage leave to it at most."""
    if space.flushes:
        after = before = (np.arange(len(space.downsets)) > 0).astype(np.int64)
        before = before[::-1]
    else:
        after = needed_devices(space.least_work, threshold)
        before = needed_devices(space.least_work[-1] - space.least_work, threshold)
    spare: Units = devices - after[inner] - before[outer]
    return spare


def _of_setting(
    space: Space,
    threshold: Threshold,
    lessons: Lessons,
    index: int,
    stages: StageCosts,
    pair: NDArray[np.int64],
    spare: Units,
    *,
    surely: bool,
) -> Iterator[tuple[NDArray[np.int64], ...]]:
    """Pair, degree, first and last sum of the candidates in one setting, ordered by pair."""
    t = stages.layers.setting.tensor_parallel
    keep = stages.possible[pair] & (spare >= t)
    if not space.flushes:
        keep &= needed_devices(stages.least[pair], threshold) * t <= spare
    pair, spare = pair[keep], spare[keep]
    if not len(pair):
        return
    degrees = np.array(stages.layers.setting.data_degrees)
    outer, inner = space.pairs.outer[pair], space.pairs.inner[pair]
    slack = space.budgets(threshold, index, outer, inner) - stages.least[pair][:, None]
    row, column = np.nonzero((slack >= 0) & (degrees * t <= spare[:, None]))
    if not len(row):
        return
    within = stages.most_in_flight(outer[row], inner[row], slack[row, column], surely=surely)
    contents = space.contents(pair)[row]
    lessons.lower(index, contents, slack[row, column], within)
    last = space.last_total(within, degrees[column])
    first = degrees[column]
    if space.smallest_degree_only:
        first = np.maximum(_reached_before(row, last) + 1, first)
    fits = first <= last
    position = space.first_degree[index] + column
    yield pair[row[fits]], position[fits], first[fits], last[fits]


def _reached_before(row: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest sum that an earlier candidate of the same row reaches."""
    reached = np.maximum.accumulate(last + row * _ROW)
    before = np.concatenate([[0], reached[:-1]]) - row * _ROW
    result: NDArray[np.int64] = np.maximum(before, 0)
    return result
