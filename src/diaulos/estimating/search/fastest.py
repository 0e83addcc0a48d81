"""Configurations that fit, fastest first, of which few are simulated.

A configuration is looked at ever more closely while it may be the next fastest: by the time of all
layers spread evenly, by its priced stages, and simulated. Each look gives a bound that is never too
high, so that what comes out is in order (best-first search).
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import Draft, Estimate, draft
from diaulos.estimating.pipeline import PipelineRun, Simulators
from diaulos.estimating.prices import LayerTimes
from diaulos.estimating.search.configurations import families, members
from diaulos.estimating.search.demand import Demand
from diaulos.estimating.search.promise import least_memory_bytes, least_step_seconds
from diaulos.estimating.search.splits import balanced_shares
from diaulos.models.operations import LayerOperations, Model, ModelOperations, Workload
from diaulos.pricing.analytic.groups import rank_groups
from diaulos.pricing.analytic.options import LayerOptions
from diaulos.pricing.analytic.seconds import LayerSeconds

_HOPELESS = 1.2
"""Of the memory there is: what needs more does not fit with other shares of blocks either."""


@dataclass(frozen=True, slots=True)
class _Simulated:
    """A configuration whose pipeline was simulated."""

    draft: Draft
    run: PipelineRun


_Known = Configuration | Draft | _Simulated


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    """A configuration as far as it is known; compared by its bound, then by the order found."""

    least_seconds: float
    number: int
    known: _Known


class Search:
    """The configurations of a model on a cluster that meet a demand."""

    def __init__(self, model: Model, cluster: Cluster, demand: Demand) -> None:
        self.cluster = cluster
        self.demand = demand
        self.configurations = 0
        """How many there are."""
        self.simulated = 0
        """Of how many the pipeline was simulated."""
        self.leanest: tuple[Draft, float] | None = None
        """Of those that lack memory, the one that lacks least, with what it needs at least."""
        self._model = model
        self._operations: dict[int, ModelOperations] = {}
        self._times = LayerTimes()
        self._simulators = Simulators()
        self._shares: dict[tuple[LayerOptions, int, int], tuple[int, ...]] = {}

    def fastest_first(self) -> Iterator[Estimate]:
        """Estimates of all configurations that fit, each as it is found to be the next fastest."""
        number = count()
        heap = [_Entry(seconds, next(number), known) for seconds, known in self._all()]
        self.configurations = len(heap)
        heapq.heapify(heap)
        while heap:
            known = heapq.heappop(heap).known
            if isinstance(known, _Simulated):
                yield known.draft.finished_with(known.run)
                continue
            for seconds, closer in self._closer(known):
                heapq.heappush(heap, _Entry(seconds, next(number), closer))

    def operations(self, microbatch_size: int) -> ModelOperations:
        """The model for microbatches of so many samples."""
        if microbatch_size not in self._operations:
            workload = Workload(
                microbatch_size=microbatch_size,
                sequence_length=self.demand.sequence_length,
                element_bytes=self.demand.precision.element_bytes,
            )
            self._operations[microbatch_size] = self._model(workload)
        return self._operations[microbatch_size]

    def _all(self) -> Iterator[tuple[float, Configuration]]:
        one = self.operations(1)
        for family in families(one, self.cluster, self.demand):
            found = list(members(family, one, self.cluster, self.demand))
            if found:
                seconds = self._layers_seconds(found[0])
                for chosen in found:
                    yield chosen.microbatches * seconds / chosen.degrees.pipeline, chosen

    def _layers_seconds(self, chosen: Configuration) -> float:
        """Of one microbatch through the whole model."""
        seconds = self._seconds_of(chosen)
        layers = self.operations(chosen.microbatch_size).layers
        return sum(seconds(layer.operations).total for layer in layers)

    def _seconds_of(self, chosen: Configuration) -> Callable[[LayerOperations], LayerSeconds]:
        groups = rank_groups(self.cluster, chosen.degrees)
        return self._times.run_as(chosen.layer_options, groups)

    def _closer(self, known: Configuration | Draft) -> Iterator[tuple[float, _Known]]:
        """The same known better; nothing where it turns out to lack memory."""
        if isinstance(known, Configuration):
            yield from self._drafts(known)
            return
        self.simulated += 1
        run = known.run(self._simulators)
        needed = max(memory.total for memory in known.memory(run)) + known.driver_bytes
        if needed <= self.cluster.largest_memory_bytes:
            # What of it is for messages is worked out for those that come out.
            step = known.parts(PipelineRun.lasting(run.seconds)).total
            yield step, _Simulated(known, run)
        else:
            self._remember(known, needed)

    def _drafts(self, chosen: Configuration) -> Iterator[tuple[float, Draft]]:
        """Spread so that the slowest stage is fastest, or evenly where that lacks memory."""
        for shares in dict.fromkeys((self._balanced(chosen), None)):
            drafted = draft(
                self.operations(chosen.microbatch_size),
                self.cluster,
                replace(chosen, blocks_per_stage=shares),
                self._times,
            )
            needed = least_memory_bytes(drafted)
            if needed <= self.cluster.largest_memory_bytes:
                yield least_step_seconds(drafted), drafted
                return
            self._remember(drafted, needed)
            if needed > _HOPELESS * self.cluster.largest_memory_bytes:
                return

    def _balanced(self, chosen: Configuration) -> tuple[int, ...] | None:
        """The shares of blocks with which the slowest stage is fastest; None for one stage."""
        if chosen.stages == 1:
            return None
        key = chosen.layer_options, chosen.microbatch_size, chosen.stages
        if key not in self._shares:
            self._shares[key] = self._worked_out_shares(chosen)
        return self._shares[key]

    def _worked_out_shares(self, chosen: Configuration) -> tuple[int, ...]:
        seconds_of = self._seconds_of(chosen)
        ends = [0.0, 0.0]
        blocks: list[float] = []
        for layer in self.operations(chosen.microbatch_size).layers:
            seconds = seconds_of(layer.operations).total
            if layer.operations.recomputable:
                blocks.append(seconds)
            else:
                ends[bool(blocks)] += seconds
        before, behind = ends
        return balanced_shares(blocks, before=before, behind=behind, stages=chosen.stages)

    def _remember(self, lacking: Draft, needed_bytes: float) -> None:
        if self.leanest is None or needed_bytes < self.leanest[1]:
            self.leanest = lacking, needed_bytes
