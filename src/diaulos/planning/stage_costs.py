"""What every possible stage costs in one setting, for all pairs of downsets at once.

Sums over a stage are differences of sums over its two downsets; only edges that skip over the
stage need a correction. What depends on memory, the time of the best options with y microbatches
in flight, is kept as bounds from below and above; the search makes them exact for the few stages
where the difference matters.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.models.graph import LayerGraph
from diaulos.planning.downsets import Downsets, Pairs
from diaulos.planning.increments import Increments, Units, increments
from diaulos.planning.layer_costs import LayerCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Costs of all pairs in one setting, in units; see `layer_costs` for what they add up to.

    With up to `easy_in_flight` microbatches in flight the fastest options fit, and take exactly
    `fastest`. With more than `most_in_flight` no options fit. In between `lower` and `upper` bound
    the time of the best options that fit: those of pair p with y in flight stand at
    `offset[p] + y - easy_in_flight[p] - 1`, and ascend with y.
    """

    layers: LayerCosts
    communication: Units
    """Of cut edges, with the options that synchronise least."""
    reduction: Units
    fastest: Units
    fastest_memory: Units
    """Of the fastest options with y in flight, summed over downsets (y - 1, downsets)."""
    easy_in_flight: NDArray[np.int64]
    most_in_flight: NDArray[np.int64]
    offset: NDArray[np.int64]
    lower: Units
    upper: Units

    def budgets(self, pairs: NDArray[np.int64], data_parallel: int, time: int) -> Units:
        """What `time`, that of all replicas of a stage, leaves for the options of its layers."""
        return time - self.communication[pairs] - (data_parallel - 1) * self.reduction[pairs]

    def most_within(self, pairs: NDArray[np.int64], budgets: Units) -> NDArray[np.int64]:
        """The most microbatches in flight with which the options may keep to a budget of time.

        Judged by the lower bounds; budgets are at least `fastest`.
        """
        easy, start = self.easy_in_flight[pairs], self.offset[pairs]
        low, high = np.zeros_like(easy), self.most_in_flight[pairs] - easy
        for _ in range(int(high.max(initial=0)).bit_length()):
            middle = (low + high + 1) // 2
            is_open = middle > low
            within = self.lower[np.where(is_open, start + middle - 1, 0)] <= budgets
            low = np.where(is_open & within, middle, low)
            high = np.where(is_open & ~within, middle - 1, high)
        most: NDArray[np.int64] = easy + low
        return most

    def bounds(self, pair: int, in_flight: int) -> tuple[int, int]:
        """The time of the best options that fit, from below and from above."""
        index = in_flight - int(self.easy_in_flight[pair]) - 1
        if index < 0:
            return int(self.fastest[pair]), int(self.fastest[pair])
        place = int(self.offset[pair]) + index
        return int(self.lower[place]), int(self.upper[place])

    def refine(self, pair: int, in_flight: int, time: int) -> None:
        """Replace the bounds of a stage by its exact time; they still ascend with y."""
        start, easy = int(self.offset[pair]), int(self.easy_in_flight[pair])
        end, index = start + int(self.most_in_flight[pair]) - easy, start + in_flight - easy - 1
        self.lower[index:end] = np.maximum(self.lower[index:end], time)
        self.upper[start : index + 1] = np.minimum(self.upper[start : index + 1], time)


def stage_costs(
    graph: LayerGraph,
    downsets: Downsets,
    pairs: Pairs,
    layers: LayerCosts,
    *,
    memory_limit: int,
    most_in_flight: int,
) -> StageCosts:
    """The costs of all pairs in the setting of `layers`."""
    communication, extra = _communication(graph, downsets, pairs, layers)
    counts = np.arange(1, most_in_flight + 1)[:, None, None]
    steps = increments(layers.times, layers.memory(counts))
    fastest = difference(downsets.sums(steps.fastest), pairs)
    fastest_memory = downsets.sums(steps.start_memory.T).T
    least_memory = downsets.sums(steps.least_memory.T).T
    most = _most_fitting(least_memory, pairs, memory_limit)
    most[difference(downsets.sums(layers.missing.astype(np.int64)), pairs) > 0] = 0
    easy = np.minimum(_most_fitting(fastest_memory, pairs, memory_limit), most)
    easy[extra > 0] = 0
    hard = _hard_stages(pairs, easy, most, fastest_memory, memory_limit)
    lower, upper = _bounds(downsets, pairs, steps, hard)
    return StageCosts(
        layers=layers,
        communication=communication,
        reduction=difference(downsets.sums(layers.reduction), pairs),
        fastest=fastest,
        fastest_memory=fastest_memory,
        easy_in_flight=easy,
        most_in_flight=most,
        offset=np.cumsum(most - easy) - (most - easy),
        lower=fastest[hard.pair] + lower,
        upper=(fastest + extra)[hard.pair] + upper,
    )


def difference(sums: Units, pairs: Pairs) -> Units:
    """The sum over each stage, from the sums over downsets."""
    result: Units = sums[pairs.outer] - sums[pairs.inner]
    return result


def _communication(
    graph: LayerGraph, downsets: Downsets, pairs: Pairs, layers: LayerCosts
) -> tuple[Units, Units]:
    """Time for the cut edges of each stage, and what unlucky options can add to it."""
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    sources = [index[edge.source] for edge in graph.edges]
    targets = [index[edge.target] for edge in graph.edges]
    crossing = (downsets.members[:, targets] & ~downsets.members[:, sources]).astype(np.int64)

    def over_stages(entering: Units, leaving: Units) -> Units:
        # An edge that crosses the borders of both downsets skips over the stage.
        skipping = (crossing * (entering + leaving)) @ crossing.T
        cut = (crossing @ entering)[pairs.outer] + (crossing @ leaving)[pairs.inner]
        return cut - skipping[pairs.outer, pairs.inner]

    extra_in, extra_out = layers.edge_in_extra.max(axis=1), layers.edge_out_extra.max(axis=1)
    communication = over_stages(layers.edge_in, layers.edge_out)
    if not extra_in.any() and not extra_out.any():
        return communication, np.zeros_like(communication)
    return communication, over_stages(extra_in, extra_out)


def _most_fitting(memory: Units, pairs: Pairs, limit: int) -> NDArray[np.int64]:
    """The most microbatches in flight with which each stage keeps to a limit.

    `memory` has a row for each count from 1 and a column for each downset; it ascends.
    """
    low = np.zeros(len(pairs), np.int64)
    high = np.full(len(pairs), len(memory))
    for _ in range(len(memory).bit_length()):
        middle = (low + high + 1) // 2
        row = np.maximum(middle, 1) - 1
        fits = memory[row, pairs.outer] - memory[row, pairs.inner] <= limit
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        high = np.maximum(low, high)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class _HardStages:
    """Stages and numbers in flight with which not simply the fastest options are the best."""

    pair: NDArray[np.int64]
    in_flight: NDArray[np.int64]
    excess: Units
    """By how much the fastest options are over the memory limit."""


def _hard_stages(
    pairs: Pairs,
    easy: NDArray[np.int64],
    most: NDArray[np.int64],
    fastest_memory: Units,
    limit: int,
) -> _HardStages:
    count = most - easy
    pair = np.repeat(np.arange(len(pairs)), count)
    in_flight = np.arange(len(pair)) - (np.cumsum(count) - most)[pair] + 1
    memory = (
        fastest_memory[in_flight - 1, pairs.outer[pair]]
        - fastest_memory[in_flight - 1, pairs.inner[pair]]
    )
    return _HardStages(pair=pair, in_flight=in_flight, excess=np.maximum(memory - limit, 0))


def _bounds(
    downsets: Downsets, pairs: Pairs, steps: Increments, hard: _HardStages
) -> tuple[Units, Units]:
    """Bounds of the time that the options of hard stages take beyond the fastest ones."""
    lower, upper = np.zeros_like(hard.pair), np.zeros_like(hard.pair)
    by_count = np.argsort(hard.in_flight, kind="stable")
    counts, starts = np.unique(hard.in_flight[by_count], return_index=True)
    for count, places in zip(counts, np.split(by_count, starts[1:]), strict=False):
        outer, inner = pairs.outer[hard.pair[places]], pairs.inner[hard.pair[places]]
        paid, saved = _taken_steps(downsets, steps, int(count) - 1)
        lower[places], upper[places] = _relaxation(paid, saved, outer, inner, hard.excess[places])
        follows = places[(places > 0) & (hard.pair[places - 1] == hard.pair[places])]
        lower[follows] = np.maximum(lower[follows], lower[follows - 1])
    return lower, upper


def _taken_steps(downsets: Downsets, steps: Increments, row: int) -> tuple[Units, Units]:
    """Time paid and memory saved by the first k steps in each downset (downsets, k from 0)."""
    useful = np.flatnonzero(steps.memory[row])
    held = downsets.members[:, steps.layer[row, useful]]
    paid = np.zeros((len(held), len(useful) + 1), np.int64)
    saved = np.zeros_like(paid)
    np.cumsum(held * steps.time[row, useful], axis=1, out=paid[:, 1:])
    np.cumsum(held * steps.memory[row, useful], axis=1, out=saved[:, 1:])
    return paid, saved


def _relaxation(
    paid: Units,
    saved: Units,
    outer: NDArray[np.int64],
    inner: NDArray[np.int64],
    excess: Units,
) -> tuple[Units, Units]:
    """Time of the steps that save at least the excess, with the last one cut and whole."""
    low = np.zeros(len(excess), np.int64)
    high = np.full(len(excess), saved.shape[1] - 1)
    for _ in range(saved.shape[1].bit_length()):
        middle = (low + high) // 2
        enough = saved[outer, middle] - saved[inner, middle] >= excess
        low, high = (
            np.where(enough, low, np.minimum(middle + 1, high)),
            np.where(enough, middle, high),
        )
    before = np.maximum(high - 1, 0)
    upper = paid[outer, high] - paid[inner, high]
    lower = paid[outer, before] - paid[inner, before]
    missing = excess - (saved[outer, before] - saved[inner, before])
    last = saved[outer, high] - saved[inner, high] - (excess - missing)
    part = missing / np.maximum(last, 1)
    # Rounded down, so that it stays a bound.
    lower += np.maximum(np.floor((upper - lower) * part * (1 - 2.0**-48)) - 1, 0).astype(np.int64)
    return np.minimum(lower, upper), upper
