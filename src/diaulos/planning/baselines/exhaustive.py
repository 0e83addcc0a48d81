"""The exhaustive planner: tries every plan of a small graph, straight from the definition.

It shares no code with the exact planner and is its judge in the tests. Plans are grown from the
output end, where the number of microbatches in flight of each stage is known; a stage is priced
when the stage before it has its place, since that decides the link between them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from diaulos.errors import InputError
from diaulos.models.graph import Option
from diaulos.planning.baselines.combinations import (
    Choice,
    Combinations,
    choices,
    combinations,
    price,
)
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.evaluation.places import StagePlace, misplacements, stage_place
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem, PlanningResult, SearchResult, answer

_MOST_LAYERS = 10
_MOST_STEPS = 1_000_000


def exhaustive(problem: PlanningProblem) -> PlanningResult:
    """The best of all plans, by the rule of the exact planner; an `InputError` if it is too large.

    The rule: least time per batch, then fewest devices, fewest stages, least memory summed over
    all devices, then the first by layers and degrees, stage by stage from the input end, then the
    last on the line of devices, again from the input end. Stages take their fastest options; among
    equal ones those of least memory, then those that stand first in the source. With a flush there
    may be several fastest ones, where less time for microbatches goes with more for the reduction.
    A stage shards its optimizer where it may and where that saves memory.
    """
    layers = len(problem.graph.layers)
    if layers > _MOST_LAYERS:
        raise InputError(
            f"the graph has {layers} layers",
            f"the exhaustive planner tries every plan, of at most {_MOST_LAYERS} layers",
            "use the exact planner",
        )
    return answer(
        problem,
        lambda given: SearchResult(plan=_Enumeration(given).best(), proven_optimal=True),
        planner="exhaustive",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A stage without its options."""

    layers: tuple[int, ...]
    """Indices in topological order."""
    data_parallel: int
    tensor_parallel: int
    first: int
    """Device."""
    total: int
    """Sum of the data-parallel degrees of it and all later stages."""

    @property
    def devices(self) -> int:
        return self.data_parallel * self.tensor_parallel

    @property
    def line(self) -> range:
        return range(self.first, self.first + self.devices)

    @property
    def order(self) -> tuple[tuple[int, ...], int, int]:
        return self.layers, self.data_parallel, self.tensor_parallel


_Stages = tuple[tuple[_Shape, Choice], ...]


@dataclass(slots=True)
class _Enumeration:
    """All plans of a problem; they grow from the output end."""

    problem: PlanningProblem
    all_replicas: int | None = None
    """The sum of all data-parallel degrees; known where what stages hold depends on it."""
    fastest_seconds: float = math.inf
    found: list[tuple[float, _Stages]] = field(default_factory=list)
    steps: int = 0
    _combinations: dict[tuple[tuple[int, ...], int], Combinations | None] = field(
        default_factory=dict
    )
    _choices: dict[tuple[object, ...], list[Choice]] = field(default_factory=dict)
    _standing: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _places_met: dict[tuple[int, int, int | None, int | None], StagePlace] = field(
        default_factory=dict
    )

    def best(self) -> Plan | None:
        """The plan that the rule picks."""
        sums: Sequence[int | None] = (None,)
        if self.problem.pipelining.defers_weight_backward:
            sums = range(1, self.problem.replicas_limit + 1)
        for self.all_replicas in sums:
            self._grow(tuple(range(len(self.problem.graph.layers))), None, (), 0.0, 0.0)
        limit = self.fastest_seconds * (1 + RELATIVE_ROUNDING)
        plans = [stages for seconds, stages in self.found if seconds <= limit]
        if not plans:
            return None
        plans = _least(plans, lambda plan: sum(shape.devices for shape, _ in plan))
        plans = _least(plans, len)
        plans = _least(
            plans, lambda plan: math.fsum(shape.devices * c.memory_bytes for shape, c in plan)
        )
        first = min(
            plans,
            key=lambda plan: ([s.order for s, _ in plan], [-s.first for s, _ in plan]),
        )
        return _plan(self.problem, first)

    def _grow(
        self,
        remaining: tuple[int, ...],
        last: _Shape | None,
        stages: _Stages,
        exposed: float,
        longest: float,
    ) -> None:
        """Go on from the stages priced so far; `last`, before them, waits for its neighbour."""
        for shape in self._shapes(remaining, last) if remaining else (None,):
            rest = tuple(i for i in remaining if i not in shape.layers) if shape else ()
            if last is None:
                self._grow(rest, shape, (), 0.0, 0.0)
                continue
            behind = stages[0][0].first if stages else None
            for choice in self._choices_of(last, shape.line[-1] if shape else None, behind):
                latency = exposed + choice.exposed_seconds
                time = max(longest, choice.remaining_seconds)
                if latency + time > self.fastest_seconds * (1 + RELATIVE_ROUNDING):
                    continue
                grown = ((last, choice), *stages)
                if shape is None and self.all_replicas not in (None, last.total):
                    continue
                if shape is None:
                    self.fastest_seconds = min(self.fastest_seconds, latency + time)
                    self.found.append((latency + time, grown))
                else:
                    self._grow(rest, shape, grown, latency, time)

    def _shapes(self, remaining: tuple[int, ...], behind: _Shape | None) -> Iterator[_Shape]:
        """Every stage that can run the end of the remaining layers, before the one behind."""
        problem = self.problem
        end = behind.first if behind else problem.cluster.devices
        total = behind.total if behind else 0
        places = [
            (d, t, first)
            for d, t in product(problem.data_degrees, problem.tensor_degrees)
            if total + d <= problem.replicas_limit
            for first in self._places(d, t, end)
        ]
        for layers in self._ends(remaining) if places else ():
            for d, t, first in places:
                self._count()
                yield _Shape(
                    layers=layers,
                    data_parallel=d,
                    tensor_parallel=t,
                    first=first,
                    total=total + d,
                )

    def _places(self, d: int, t: int, end: int) -> list[int]:
        """Where a stage can stand before a device; where it does not matter, right before it."""
        cluster = self.problem.cluster
        latest = end - d * t
        if cluster.is_flat:
            return [latest] if latest >= 0 else []
        if (d, t) not in self._standing:
            self._standing[d, t] = [
                first
                for first in range(cluster.devices - d * t + 1)
                if not any(misplacements(cluster, range(first, first + d * t), t))
            ]
        return [first for first in self._standing[d, t] if first <= latest]

    def _ends(self, remaining: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Subsets of the remaining layers that feed none of the others."""
        graph = self.problem.graph
        index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
        edges = [(index[edge.source], index[edge.target]) for edge in graph.edges]
        for chosen in product((False, True), repeat=len(remaining)):
            inside = {layer for layer, is_in in zip(remaining, chosen, strict=True) if is_in}
            outside = set(remaining) - inside
            if inside and not any(s in inside and t in outside for s, t in edges):
                yield tuple(sorted(inside))

    def _choices_of(self, shape: _Shape, before: int | None, behind: int | None) -> list[Choice]:
        """The options that a stage may take between the nearest devices of its neighbours."""
        problem, d = self.problem, shape.data_parallel
        place = self._place_of(shape, before, behind)
        total = shape.total if self.all_replicas is None else self.all_replicas
        in_flight = problem.pipelining.in_flight(total, d, problem.microbatches)
        key = (*shape.order, in_flight, place)
        if key not in self._choices:
            some = self._combinations_of(shape)
            self._choices[key] = []
            if some is not None:
                prices = price(problem, some, place, data_parallel=d, total=total)
                limit = place.group.memory_bytes
                self._choices[key] = list(choices(problem, some, prices, d, limit))
        return self._choices[key]

    def _place_of(self, shape: _Shape, before: int | None, behind: int | None) -> StagePlace:
        key = (shape.first, shape.devices, before, behind)
        if key not in self._places_met:
            self._places_met[key] = stage_place(
                self.problem.cluster, shape.line, before=before, behind=behind
            )
        return self._places_met[key]

    def _combinations_of(self, shape: _Shape) -> Combinations | None:
        key = (shape.layers, shape.tensor_parallel)
        if key not in self._combinations:
            order = self.problem.graph.topological_order
            ids = [order[layer] for layer in shape.layers]
            self._combinations[key] = combinations(self.problem, ids, shape.tensor_parallel)
        return self._combinations[key]

    def _count(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise InputError(
                f"the problem has too many plans, more than {_MOST_STEPS} steps",
                "the exhaustive planner tries every plan",
                "use the exact planner",
            )


def _least(plans: list[_Stages], measure: Callable[[_Stages], float]) -> list[_Stages]:
    """The plans of least measure, equal ones within rounding."""
    limit = min(map(measure, plans)) * (1 + RELATIVE_ROUNDING)
    return [plan for plan in plans if measure(plan) <= limit]


def _plan(problem: PlanningProblem, stages: _Stages) -> Plan:
    return Plan(
        stages=tuple(_stage(problem, shape, choice.options) for shape, choice in stages),
        microbatches=problem.microbatches,
    )


def _stage(problem: PlanningProblem, shape: _Shape, options: Sequence[Option]) -> Stage:
    ids = [problem.graph.topological_order[layer] for layer in shape.layers]
    shares = any(option.fixed_memory.optimizer_bytes > 0 for option in options)
    return Stage(
        layers=tuple(ids),
        data_parallel=shape.data_parallel,
        tensor_parallel=shape.tensor_parallel,
        options={layer: option.name for layer, option in zip(ids, options, strict=True)},
        sharded_optimizer=problem.shard_optimizer and shape.data_parallel > 1 and shares,
        first_device=None if problem.cluster.is_flat else shape.first,
    )
