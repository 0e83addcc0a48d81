"""All that the plans of a problem are made of, priced: what the exact search searches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.evaluation.pipelining import least_weight_backward_seconds
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.stage_costs.costs import (
    LayerCosts,
    layer_costs,
    refuse_what_options_couple,
    settings,
    time_units,
)
from diaulos.planning.search.stage_costs.downsets import (
    Downsets,
    Pairs,
    enumerate_downsets,
    enumerate_pairs,
)
from diaulos.planning.search.stage_costs.fixed_point import FixedPoint, Units
from diaulos.planning.search.stage_costs.line import Degree, Line
from diaulos.planning.search.stage_costs.stages import StageCosts, stage_costs
from diaulos.planning.search.stage_costs.threshold import Threshold

_MOST_TIME = 2**62
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Space:
    """The stages of all plans of a problem, with costs in units."""

    problem: PlanningProblem
    downsets: Downsets
    pairs: Pairs
    settings: Sequence[StageCosts]
    unit: FixedPoint
    edge_ends: Sequence[tuple[int, int]]
    """Source and target of each edge, by their indices in topological order."""
    least_work: Units
    """Time that the layers of a downset take at least, times the devices that they take it on."""
    least_latency: Units
    """Time of one microbatch in the layers of a downset at least, as exposed by a flush."""
    deferred: Sequence[Units]
    """By setting: weight backward of each downset that fills the drain, twice."""
    least_time: int
    """Per sample: what the slowest stage of any plan takes at least."""
    least_replicas: int = 0
    """What all data-parallel degrees count as at least, where stages hold as many microbatches as
    these ask for; those from the stage on count at any rate (see `Pipelining.totals`)."""
    most_replicas: int | None = None
    """What they may sum up to, where that is less than the problem's limit."""

    @cached_property
    def devices(self) -> int:
        """Devices of the cluster."""
        return self.problem.cluster.devices

    @cached_property
    def replicas_limit(self) -> int:
        """The most that data-parallel degrees may sum up to."""
        limit = self.problem.replicas_limit
        return limit if self.most_replicas is None else min(self.most_replicas, limit)

    @cached_property
    def weight(self) -> int:
        """By what devices are multiplied where devices and stages are packed into one number."""
        return len(self.problem.graph.layers) + 1

    @cached_property
    def degrees(self) -> tuple[Degree, ...]:
        """What a stage can have, by setting, then by data-parallel degree."""
        return tuple(
            Degree(
                setting=index,
                position=position,
                data_parallel=d,
                devices=d * costs.layers.setting.tensor_parallel,
            )
            for index, costs in enumerate(self.settings)
            for position, d in enumerate(costs.layers.setting.data_degrees)
        )

    @cached_property
    def line(self) -> Line:
        """Where stages can stand."""
        return Line(
            cluster=self.problem.cluster,
            settings=tuple(costs.layers.setting for costs in self.settings),
            degrees=self.degrees,
        )

    @cached_property
    def replicas_of(self) -> NDArray[np.int64]:
        """The data-parallel degree by index of `degrees`."""
        return np.array([degree.data_parallel for degree in self.degrees])

    @cached_property
    def setting_of(self) -> NDArray[np.int64]:
        """The setting by index of `degrees`."""
        return np.array([degree.setting for degree in self.degrees])

    @cached_property
    def packed_of(self) -> NDArray[np.int64]:
        """Devices and the one stage, packed into one number, by index of `degrees`."""
        return np.array([degree.devices for degree in self.degrees]) * self.weight + 1

    def batch_seconds(self, time: Fraction) -> float:
        """A time that searches compare, as seconds of a batch."""
        seconds = float(time) * self.unit.unit
        return seconds if self.flushes else seconds * self.problem.microbatches

    @property
    def least_batch_time(self) -> Fraction:
        """What no plan can be faster than, as searches compare it."""
        times = self.problem.microbatches if self.flushes else 1
        return Fraction(self.least_time * times)

    def limited(self, least_replicas: int, most_replicas: int) -> "Space":
        """The space of plans whose data-parallel degrees sum up to so much, between the two.

        Where all of them count, stages hold no more than in such a plan, and no less than in one
        whose degrees sum up to the least; with both equal they hold just that.
        """
        return replace(self, least_replicas=least_replicas, most_replicas=most_replicas)

    def in_flight(self, total: int, degree: int) -> int:
        """Microbatches in flight on a replica where the degrees from the stage on sum up so."""
        return self.problem.pipelining.in_flight(
            max(total, self.least_replicas),
            self.degrees[degree].data_parallel,
            self.problem.microbatches,
        )

    def numbers_in_flight(
        self, total: NDArray[np.int64], degree: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The same for several."""
        data_parallel = self.replicas_of[degree]
        steady = -(-np.maximum(total, self.least_replicas) // data_parallel)
        if not self.flushes:
            return steady
        whole_batch = self.problem.microbatches // data_parallel
        all_of_it = self.problem.pipelining.holds_whole_batch
        fewer: NDArray[np.int64] = np.minimum(steady, whole_batch)
        return whole_batch if all_of_it else fewer

    def reduction(self, pair: int, degree: int) -> int:
        """Time of the reduction for each microbatch, times the replicas."""
        place = self.degrees[degree]
        costs = self.settings[place.setting]
        outer, inner = self.pairs.outer[pair], self.pairs.inner[pair]
        amount = int(costs.reduction[outer]) - int(costs.reduction[inner])
        factor = int(costs.layers.reduction_factors[place.position])
        return factor * amount + int(costs.layers.reduction_constants[place.position])

    def deferred_time(self, pair: int, degree: int) -> int:
        """Twice the weight backward of a stage that fills the drain."""
        amounts = self.deferred[self.degrees[degree].setting]
        return int(amounts[self.pairs.outer[pair]]) - int(amounts[self.pairs.inner[pair]])

    @cached_property
    def most_shards(self) -> int:
        """The largest tensor-parallel degree."""
        return max(costs.layers.setting.tensor_parallel for costs in self.settings)

    @cached_property
    def first_degree(self) -> tuple[int, ...]:
        """Where the degrees of each setting begin."""
        counts = [len(costs.layers.setting.data_degrees) for costs in self.settings]
        return tuple(np.cumsum([0, *counts])[:-1].tolist())

    @cached_property
    def flushes(self) -> bool:
        """Whether a batch is filled and drained."""
        return self.problem.pipelining.flushes

    @cached_property
    def smallest_degree_only(self) -> bool:
        """Whether stages need the smallest data-parallel degree with which they are fast enough."""
        return self.problem.cluster.is_flat and not self.flushes

    def last_total(
        self, in_flight: NDArray[np.int64], data_parallel: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The largest sum of degrees with which at most so many microbatches are in flight.

        The sum is that of a stage and all later ones, up to `replicas_limit`.
        """
        last: NDArray[np.int64] = np.minimum(data_parallel * in_flight, self.replicas_limit)
        if not self.flushes:
            return last
        last = np.where(last >= min(self.least_replicas, self.replicas_limit), last, 0)
        whole_batch = in_flight >= self.problem.microbatches // data_parallel
        fewer = 0 if self.problem.pipelining.holds_whole_batch else last
        result: NDArray[np.int64] = np.where(whole_batch, self.replicas_limit, fewer)
        return result

    def budgets(
        self,
        threshold: Threshold,
        setting: int,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        position: NDArray[np.int64],
    ) -> Units:
        """Time that one microbatch may take on a replica of some stages of a setting.

        `position` is that of each stage's degree in the setting. Exact without a flush; with one,
        rounded up.
        """
        costs = self.settings[setting]
        degrees = costs.layers.setting.data_degrees
        other = costs.layers.reduction_factors[position]
        other = other * (costs.reduction[outer] - costs.reduction[inner])
        other += costs.layers.reduction_constants[position]
        if not self.flushes:
            return np.array([threshold.whole(d) for d in degrees])[position] - other
        d, microbatches = np.array(degrees)[position], self.problem.microbatches
        deferred = self.deferred[setting][outer] - self.deferred[setting][inner]
        all_replicas = float(threshold.time) * d
        left = all_replicas - microbatches * other.astype(np.float64) - deferred * (1.0 * d)
        left += _ROUNDING * (all_replicas + microbatches * other.astype(np.float64))
        # With one microbatch on each replica nothing but the reduction counts.
        most = np.where(left >= 0, float(_MOST_TIME), -1.0)
        np.divide(left, microbatches - d, out=most, where=microbatches > d)
        return np.clip(np.ceil(most), -1, _MOST_TIME).astype(np.int64)

    @cached_property
    def level_of(self) -> NDArray[np.int64]:
        """How many layers each downset has."""
        starts = self.downsets.level_starts
        return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def build_space(
    problem: PlanningProblem, order_edges: Sequence[tuple[int, int]] = ()
) -> Space | None:
    """The space of a problem, without downsets that break an order.

    None where some layer cannot run even alone.
    """
    refuse_what_options_couple(problem)
    graph, unit = problem.graph, time_units(problem)
    layers = [layer_costs(problem, setting, unit) for setting in settings(problem)]
    if not layers or np.all([costs.unfit for costs in layers], axis=0).any():
        return None
    downsets = enumerate_downsets(graph, order_edges)
    pairs = enumerate_pairs(downsets)
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    ends = [(index[edge.source], index[edge.target]) for edge in graph.edges]
    least_work = downsets.sums(_least(layers, times_devices=True))
    deferred = [_deferred(problem, costs, unit) for costs in layers]
    latency = _least(layers, times_devices=False) - np.max(deferred, axis=0)
    return Space(
        problem=problem,
        downsets=downsets,
        pairs=pairs,
        settings=[stage_costs(problem, ends, downsets, pairs, costs) for costs in layers],
        unit=unit,
        edge_ends=ends,
        least_work=least_work,
        least_latency=downsets.sums(np.maximum(latency, 0)),
        deferred=[downsets.sums(amounts) for amounts in deferred],
        least_time=max(
            int(least_work[-1]) // problem.cluster.devices, _least_time(problem, layers)
        ),
    )


def _least(layers: Sequence[LayerCosts], *, times_devices: bool) -> Units:
    """Of each layer, the least time of its options, or that times the shards that they run on."""
    amounts = [
        np.where(
            costs.missing,
            2**62,
            costs.times.min(axis=1) * (costs.setting.tensor_parallel if times_devices else 1),
        )
        for costs in layers
    ]
    result: Units = np.min(amounts, axis=0)
    return result


def _least_time(problem: PlanningProblem, layers: Sequence[LayerCosts]) -> int:
    """The time of the slowest layer, each at the degrees that suit it best."""
    best = np.full(len(problem.graph.layers), 2**62)
    for costs in layers:
        fastest = costs.times.min(axis=1)
        for d, factor in zip(
            costs.setting.data_degrees, costs.reduction_factors.tolist(), strict=True
        ):
            if d * costs.setting.tensor_parallel <= problem.cluster.devices:
                times = (fastest + factor * costs.reduction) // d
                best = np.where(costs.missing, best, np.minimum(best, times))
    return int(best.max())


def _deferred(problem: PlanningProblem, costs: LayerCosts, unit: FixedPoint) -> Units:
    """Of each layer, twice the weight backward that fills the drain."""
    graph, t = problem.graph, costs.setting.tensor_parallel
    if not problem.pipelining.defers_weight_backward:
        return np.zeros(len(graph.layers), np.int64)
    speed = problem.cluster.groups[costs.setting.group].speed
    seconds = [
        0.0 if missing else 2 * least_weight_backward_seconds(graph.layer(layer_id), t) / speed
        for layer_id, missing in zip(graph.topological_order, costs.missing, strict=True)
    ]
    return unit.units(seconds)
