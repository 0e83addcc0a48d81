"""Plans without their options: cuts and degrees, which are easy to vary.

A finer judge than the closed form looks at many plans that hardly differ. Here they are told by
the downsets between their stages and the degrees of these, and become plans when all stages fit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice, pairwise

import numpy as np

from diaulos.clusters.cluster import Cluster, Link
from diaulos.planning.exact import contractions
from diaulos.planning.merging.contraction import Contraction
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.stage_costs.downsets import TooManyStagesError
from diaulos.planning.search.stage_costs.space import build_space

_NO_LIMIT = 1e30
"""Bytes per second with which nothing takes any time."""


@dataclass(frozen=True, slots=True, order=True)
class Degrees:
    """Of a stage."""

    data_parallel: int
    tensor_parallel: int

    @property
    def devices(self) -> int:
        """Devices that the stage takes."""
        return self.data_parallel * self.tensor_parallel


@dataclass(frozen=True, slots=True)
class Outline:
    """A plan without its options."""

    cuts: tuple[int, ...]
    """Downsets before, between and behind the stages: from all layers to none, by their index."""
    degrees: tuple[Degrees, ...]
    """Of each stage, from the input end."""

    @property
    def replicas(self) -> tuple[int, ...]:
        """The data-parallel degree of each stage."""
        return tuple(some.data_parallel for some in self.degrees)


@dataclass(kw_only=True)
class Outlines:
    """What turns outlines of a problem into plans, and finds those that a stage can be part of.

    Options of a stage are those that compute fastest: communication does not decide between them.
    """

    problem: PlanningProblem
    contraction: Contraction
    judge: Judge
    _larger_than: dict[int, list[int]] = field(default_factory=dict)

    @staticmethod
    def of(problem: PlanningProblem) -> "Outlines | None":
        """Those of a problem, its graph contracted where it has too many downsets.

        None where some layer cannot run even alone.
        """
        for contraction in contractions(problem):
            silent = replace(
                problem,
                graph=contraction.graph,
                cluster=without_communication(problem.cluster),
            )
            try:
                space = build_space(silent, contraction.order_edges)
            except TooManyStagesError:
                continue
            if space is None:
                return None
            return Outlines(problem=problem, contraction=contraction, judge=Judge(space=space))
        return None

    @property
    def are_all(self) -> bool:
        """Whether every plan of the problem has an outline, but for its options.

        It has none where layers are merged or ordered, or where places on the cluster differ.
        """
        return self.contraction.graph is self.problem.graph and self.problem.cluster.is_flat

    @cached_property
    def members(self) -> tuple[frozenset[int], ...]:
        """The layers of each downset, by their index in the contracted graph's order."""
        rows = self.judge.space.downsets.members
        return tuple(frozenset(np.flatnonzero(row).tolist()) for row in rows)

    @cached_property
    def index_of(self) -> dict[frozenset[int], int]:
        """The index of each downset by its layers."""
        return {layers: index for index, layers in enumerate(self.members)}

    @cached_property
    def all_degrees(self) -> tuple[Degrees, ...]:
        """All that stages can have, by tensor-parallel degree, then by data-parallel degree."""
        problem = self.judge.space.problem
        return tuple(
            Degrees(d, t)
            for t in problem.tensor_degrees
            for d in problem.data_degrees
            if d * t <= problem.cluster.devices
        )

    def indices_of(self, degrees: Degrees) -> list[int]:
        """The degrees of the space with these figures: one, or one for each kind of place."""
        return self._indices.get(degrees, [])

    def within_limits(self, degrees: Sequence[Degrees]) -> bool:
        """Whether the devices and the microbatches of a batch are enough for such stages."""
        space = self.judge.space
        return (
            sum(some.data_parallel for some in degrees) <= space.replicas_limit
            and sum(some.devices for some in degrees) <= space.devices
        )

    def outline(self, plan: Plan) -> Outline | None:
        """The outline of a plan; None where it splits what is contracted here."""
        order = self.contraction.graph.topological_order
        part_of = {
            layer: order.index(part)
            for part, group in self.contraction.groups.items()
            for layer in group.layers
        }
        left = frozenset(range(len(order)))
        cuts = [left]
        for stage in plan.stages:
            left -= {part_of[layer] for layer in stage.layers}
            cuts.append(left)
        if cuts[-1] or any(cut not in self.index_of for cut in cuts) or len(set(cuts)) < len(cuts):
            return None
        return Outline(
            tuple(self.index_of[cut] for cut in cuts),
            tuple(Degrees(stage.data_parallel, stage.tensor_parallel) for stage in plan.stages),
        )

    def placements(self, outline: Outline) -> tuple[Placement, ...] | None:
        """The stages of an outline, from the input end; None where one finds no place or options.

        Where it matters, stages stand one after another from the end of the line of devices.
        """
        totals = self.problem.pipelining.totals(outline.replicas)
        if not self.within_limits(outline.degrees):
            return None
        found, end = [], 0
        stages = [*zip(pairwise(outline.cuts), outline.degrees, totals, strict=True)]
        for (outer, inner), degrees, total in reversed(stages):
            place = self._place(degrees, end)
            pair = self._pair(outer, inner)
            if place is None or pair is None:
                return None
            degree, end = place
            placement = Placement(
                pair=pair,
                degree=degree,
                in_flight=self.problem.pipelining.in_flight(
                    total, degrees.data_parallel, self.problem.microbatches
                ),
                end=0 if self.problem.cluster.is_flat else end,
            )
            if self._is_missing(placement) or self.judge.choice(placement) is None:
                return None
            found.append(placement)
        return tuple(reversed(found))

    def stage(self, placement: Placement, options: tuple[int, ...] | None = None) -> Stage:
        """A stage of `placements`, of the problem's own graph; its options may be given."""
        judge = self.judge
        stage = judge.stage_with(placement, options) if options else judge.stage(placement)
        some = Plan(stages=(stage,), microbatches=self.problem.microbatches)
        return self.contraction.expand(some).stages[0]

    def later(self, placement: Placement) -> frozenset[int]:
        """The layers of the problem's own graph that stand behind a stage."""
        inner = int(self.judge.space.pairs.inner[placement.pair])
        order, groups = self.contraction.graph.topological_order, self.contraction.groups
        parts = (groups[order[part]].layers for part in self.members[inner])
        return frozenset(chain.from_iterable(parts))

    def first(self, count: int) -> list[Outline]:
        """The first so many outlines of all that keep to the devices, whether they fit or not."""
        return list(islice(self._grown((0,), (), 0, 0), count))

    def _grown(
        self, cuts: tuple[int, ...], degrees: tuple[Degrees, ...], replicas: int, devices: int
    ) -> Iterator[Outline]:
        """All that go on before some last stages."""
        everything = len(self.members) - 1
        if cuts[0] == everything:
            yield Outline(cuts, degrees)
            return
        for some in self.all_degrees:
            total, used = replicas + some.data_parallel, devices + some.devices
            left = min(self.judge.space.replicas_limit - total, self.judge.space.devices - used)
            if left >= 0:
                for outer in self._larger(cuts[0]) if left else (everything,):
                    yield from self._grown((outer, *cuts), (some, *degrees), total, used)

    def _larger(self, cut: int) -> list[int]:
        """The downsets that hold all of one and more."""
        if cut not in self._larger_than:
            members = self.judge.space.downsets.members
            holds = (members[cut + 1 :] >= members[cut]).all(axis=1)
            self._larger_than[cut] = (np.flatnonzero(holds) + cut + 1).tolist()
        return self._larger_than[cut]

    def _pair(self, outer: int, inner: int) -> int | None:
        """The index of a pair by its downsets; None where they are not nested."""
        pairs = self.judge.space.pairs
        start, end = pairs.starts[outer], pairs.starts[outer + 1]
        place = int(start + np.searchsorted(pairs.inner[start:end], inner))
        return place if place < end and pairs.inner[place] == inner else None

    def _is_missing(self, placement: Placement) -> bool:
        """Whether a layer of the stage has no option at its degree."""
        space = self.judge.space
        costs = space.settings[space.degrees[placement.degree].setting]
        return not bool(costs.possible[placement.pair])

    @cached_property
    def _indices(self) -> dict[Degrees, list[int]]:
        space = self.judge.space
        found: dict[Degrees, list[int]] = {}
        for index, degree in enumerate(space.degrees):
            shards = space.settings[degree.setting].layers.setting.tensor_parallel
            found.setdefault(Degrees(degree.data_parallel, shards), []).append(index)
        return found

    def _place(self, degrees: Degrees, end: int) -> tuple[int, int] | None:
        """The degree of the space with which a stage stands before an end, and its own end."""
        space, indices = self.judge.space, self.indices_of(degrees)
        if not indices:
            return None
        if self.problem.cluster.is_flat:
            return indices[0], end + degrees.devices
        ends = np.full(len(indices), end)
        places = [
            (place, indices[some])
            for rows, _, places in space.line.placements(ends, np.array(indices))
            for some, place in zip(rows.tolist(), places.tolist(), strict=True)
            if place <= space.devices
        ]
        if not places:
            return None
        place, index = min(places)
        return index, place


def without_communication(cluster: Cluster) -> Cluster:
    """The cluster with links on which nothing takes any time."""

    def fast(link: Link) -> Link:
        return replace(link, bandwidth_bytes_per_second=_NO_LIMIT, latency_seconds=0.0)

    groups = tuple(replace(group, link=fast(group.link)) for group in cluster.groups)
    return replace(cluster, groups=groups, link=fast(cluster.link))
