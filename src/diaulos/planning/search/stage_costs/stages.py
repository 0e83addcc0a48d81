"""What every possible stage costs in one setting, for all pairs of downsets at once.

Sums over a stage are differences of sums over its two downsets; only edges that skip over the
stage need a correction. Costs are never too high: options that differ in what they synchronise
count as the cheapest, and the choice of options within the memory limit is relaxed. The search
makes them exact for the few stages where the difference matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.stage_costs.borders import cut_edges, shared_tensors
from diaulos.planning.search.stage_costs.costs import LayerCosts
from diaulos.planning.search.stage_costs.downsets import Downsets, Pairs
from diaulos.planning.search.stage_costs.fixed_point import MOST_UNITS, Units
from diaulos.planning.search.stage_costs.relaxation import Regime, regimes


@dataclass(frozen=True, kw_only=True)
class StageCosts:
    """Costs of all pairs in one setting, in units of time."""

    layers: LayerCosts
    possible: NDArray[np.bool_]
    """Whether every layer of the stage has an option, and some options fit at any place."""
    most_at_all: NDArray[np.int64]
    """Microbatches in flight with the options of least memory; never too few."""
    least: Units
    """Of the fastest options and the cut edges."""
    reduction: Units
    """Of each downset."""
    regimes: tuple[Regime, ...]
    is_linear: bool
    """Whether nothing but sums over layers counts as memory."""

    def most_in_flight(
        self,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        slack: Units,
        *,
        surely: bool = False,
    ) -> NDArray[np.int64]:
        """The most microbatches in flight with which a stage may keep to a budget of time.

        `slack` is what the budget leaves beyond `least`, at least 0. With `surely` it keeps to the
        budget, but perhaps also with more.
        """
        if surely and not (self.layers.options_synchronise_alike and self.is_linear):
            return np.zeros(len(outer), np.int64)
        most = np.zeros(len(outer), np.int64)
        left = np.arange(len(outer))
        for regime in reversed(self.regimes):
            found = regime.most_in_flight(
                outer[left],
                inner[left],
                slack[left],
                self.layers.memory_limit_bytes,
                surely=surely,
            )
            reached = found >= regime.first
            most[left[reached]] = found[reached]
            left = left[~reached]
            if not len(left):
                break
        return most

    def least_times(
        self,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        in_flight: NDArray[np.int64],
    ) -> Units:
        """By how much one microbatch takes longer than `least` at least; `NEVER` if none fits."""
        longer = np.zeros(len(outer), np.int64)
        for regime in self.regimes:
            some = np.flatnonzero((regime.first <= in_flight) & (in_flight <= regime.last))
            if len(some):
                longer[some] = regime.least_paid(
                    outer[some], inner[some], in_flight[some], self.layers.memory_limit_bytes
                )
        return longer

    @cached_property
    def fastest_are_sure(self) -> bool:
        """Whether the fastest options are the best wherever they fit."""
        layers = self.layers
        excess = layers.times - layers.times.min(axis=1, keepdims=True)
        near_ties = (excess > 0) & (excess <= MOST_UNITS * RELATIVE_ROUNDING)
        return layers.options_synchronise_alike and self.is_linear and not near_ties.any()

    def memory_of_fastest(
        self,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        in_flight: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Bytes of the fastest options, of least memory if several are; NaN where they don't fit.

        Also NaN within rounding of the limit.
        """
        held = np.full(len(outer), np.nan)
        for regime in self.regimes:
            some = (regime.first <= in_flight) & (in_flight <= regime.last)
            held[some] = regime.memory_at_start(outer[some], inner[some], in_flight[some])
        held[held > self.layers.memory_limit_bytes * (1 - 1e-9)] = np.nan
        return held


def stage_costs(
    problem: PlanningProblem,
    edge_ends: Sequence[tuple[int, int]],
    downsets: Downsets,
    pairs: Pairs,
    layers: LayerCosts,
) -> StageCosts:
    """The costs of all pairs in the setting of `layers`.

    `edge_ends` are the source and target of each edge, by their indices in topological order.
    """
    fastest = downsets.sums(layers.times.min(axis=1))
    missing = downsets.sums(layers.missing.astype(np.int64))
    ends = [(source, target) for source, target in edge_ends]
    entering, leaving = layers.edge_in.min(axis=1), layers.edge_out.min(axis=1)
    if problem.costs.shared_tensors_once:
        least = shared_tensors(ends, downsets, pairs, entering, leaving)
    else:
        least = cut_edges(ends, downsets, pairs, entering, leaving)
    least += fastest[pairs.outer]
    least -= fastest[pairs.inner]
    tables = regimes(layers, downsets, _most_in_flight(problem))
    most = _most_at_all(tables, pairs, layers)
    possible = missing[pairs.outer] == missing[pairs.inner]
    possible &= most >= _least_in_flight(problem, pairs)
    return StageCosts(
        layers=layers,
        possible=possible,
        most_at_all=most,
        least=least,
        reduction=downsets.sums(layers.reduction),
        regimes=tables,
        is_linear=not problem.costs.counts_buffers and not layers.temporary_bytes.any(),
    )


def _least_in_flight(problem: PlanningProblem, pairs: Pairs) -> NDArray[np.int64]:
    """How many microbatches stages have in flight at least.

    Where nothing is flushed, a later stage has at least one replica, so that ceil(s/d) is 2.
    """
    return np.where((pairs.inner > 0) & (not problem.pipelining.flushes), 2, 1)


def _most_at_all(tables: Sequence[Regime], pairs: Pairs, layers: LayerCosts) -> NDArray[np.int64]:
    """The most in flight with which the options of least memory fit."""
    most = np.zeros(len(pairs), np.int64)
    for regime in tables:
        found = regime.most_in_flight_at_all(pairs.outer, pairs.inner, layers.memory_limit_bytes)
        most = np.where(found >= regime.first, found, most)
    return most


def _most_in_flight(problem: PlanningProblem) -> int:
    """The most microbatches that a stage of any plan has in flight."""
    holds_all = problem.pipelining.holds_whole_batch
    return problem.microbatches if holds_all else problem.replicas_limit
