"""Covering all layers with stages that keep to a threshold, on the fewest devices.

For a threshold on the time per sample, `candidates` lists the stages that keep to it and
`fewest` finds, for each downset and each sum s of data-parallel degrees, the fewest devices (then
the fewest stages) that run it. s decides how many microbatches are in flight. It is enough to
consider the smallest data-parallel degree with which a stage keeps to the threshold at a given s:
in a plan on the fewest devices every stage has it, since with a smaller one it would take fewer
devices and leave fewer microbatches in flight to the stages before it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.increments import Units
from diaulos.planning.space import Space

IMPOSSIBLE = 2**40
"""More than any number of devices and stages, packed as `pack` does."""
_MOST_TIME = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A time per sample in units that stages may take, or (`strict`) must stay below."""

    time: Fraction
    strict: bool = False

    def of_all_replicas(self, data_parallel: int) -> int:
        """The most that the replicas of a stage may take together, in whole units."""
        product = self.time * data_parallel
        most = math.ceil(product) - 1 if self.strict else math.floor(product)
        return min(most, _MOST_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Stages that may keep to a threshold, ordered by their outer downset.

    Candidate c may stand where the sum of data-parallel degrees from it on is between `first[c]`
    and `last[c]`.
    """

    pair: NDArray[np.int64]
    setting: NDArray[np.int64]
    data_parallel: NDArray[np.int64]
    tensor_parallel: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pair)


def candidates(space: Space, threshold: Threshold, devices: int) -> Candidates:
    """The stages that keep to a threshold and leave enough devices for all other layers."""
    spare = devices - _least_devices_of_others(space, threshold)
    found = [
        part
        for tensor_parallel in sorted({s.layers.setting.tensor_parallel for s in space.settings})
        for part in _candidates_at(space, threshold, spare, tensor_parallel)
    ]
    if not found:
        found = [(np.zeros(0, np.int64),) * 6]
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    order = np.argsort(columns[0], kind="stable")  # pairs are ordered by their outer downset
    pair, setting, data_parallel, tensor_parallel, first, last = (c[order] for c in columns)
    return Candidates(
        pair=pair,
        setting=setting,
        data_parallel=data_parallel,
        tensor_parallel=tensor_parallel,
        first=first,
        last=last,
    )


def fewest(space: Space, chosen: Candidates) -> Units:
    """Devices and stages, packed, to run each downset with each exact sum s (downsets, s)."""
    table = np.full((len(space.downsets), space.replicas_limit + 1), IMPOSSIBLE, np.int64)
    table[0, 0] = 0
    outer, inner = space.pairs.outer[chosen.pair], space.pairs.inner[chosen.pair]
    weight = pack(space, chosen)
    rows = zip(
        outer.tolist(),
        inner.tolist(),
        chosen.first.tolist(),
        chosen.last.tolist(),
        chosen.data_parallel.tolist(),
        weight.tolist(),
        strict=True,
    )
    for to, rest, first, last, replicas, cost in rows:
        part = table[to, first : last + 1]
        np.minimum(part, table[rest, first - replicas : last + 1 - replicas] + cost, out=part)
    return table


def trace(space: Space, chosen: Candidates, table: Units) -> Iterator[tuple[int, int]]:
    """Candidates and sums s of a plan on the fewest devices, from the input end."""
    outer, inner = space.pairs.outer[chosen.pair], space.pairs.inner[chosen.pair]
    starts = np.searchsorted(outer, np.arange(len(space.downsets) + 1))
    weight = pack(space, chosen)
    downset, total = len(space.downsets) - 1, int(table[-1].argmin())
    while downset > 0:
        some = np.arange(starts[downset], starts[downset + 1])
        some = some[(chosen.first[some] <= total) & (total <= chosen.last[some])]
        rest = table[inner[some], total - chosen.data_parallel[some]]
        step = int(some[np.argmax(rest + weight[some] == table[downset, total])])
        yield step, total
        downset, total = int(inner[step]), total - int(chosen.data_parallel[step])


def pack(space: Space, chosen: Candidates) -> Units:
    """Devices of each candidate and its one stage as one number, compared in that order."""
    devices = chosen.data_parallel * chosen.tensor_parallel
    result: Units = devices * space.stage_weight + 1
    return result


def _least_devices_of_others(space: Space, threshold: Threshold) -> Units:
    """The fewest devices that the layers outside each stage can need under a threshold."""
    time = float(threshold.time) * (1 + 1e-9)
    if time <= 0:
        return np.zeros(len(space.pairs), np.int64)
    after = np.ceil(space.least_work / time)
    before = np.ceil((space.least_work[-1] - space.least_work) / time)
    others: Units = (after[space.pairs.inner] + before[space.pairs.outer]).astype(np.int64)
    return others


def _candidates_at(
    space: Space, threshold: Threshold, spare: Units, tensor_parallel: int
) -> Iterator[tuple[Units, ...]]:
    """Candidates of one tensor-parallel degree, smallest data-parallel degree first."""
    reached = np.zeros(len(space.pairs), np.int64)
    for index, degree in _degrees(space, tensor_parallel):
        stages = space.settings[index]
        possible = np.flatnonzero(
            (spare >= degree * tensor_parallel)
            & (stages.most_in_flight > 0)
            & (reached < space.replicas_limit)
        )
        budgets = stages.budgets(possible, degree, threshold.of_all_replicas(degree))
        quick = stages.fastest[possible] <= budgets
        if not quick.any():
            continue
        possible, budgets = possible[quick], budgets[quick]
        last = np.minimum(degree * stages.most_within(possible, budgets), space.replicas_limit)
        first = np.maximum(reached[possible] + 1, degree)
        keep = first <= last
        pair, first, last = possible[keep], first[keep], last[keep]
        reached[pair] = last
        constants = (np.full(len(pair), value) for value in (index, degree, tensor_parallel))
        yield (pair, *constants, first, last)


def _degrees(space: Space, tensor_parallel: int) -> Iterator[tuple[int, int]]:
    """Settings and data-parallel degrees of one tensor-parallel degree, ascending by degree."""
    pairs = [
        (degree, index)
        for index, stages in enumerate(space.settings)
        if stages.layers.setting.tensor_parallel == tensor_parallel
        for degree in stages.layers.setting.data_degrees
    ]
    return ((index, degree) for degree, index in sorted(pairs))
