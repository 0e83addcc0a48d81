"""The exhaustive planner: tries every plan of a small graph, straight from the definition.

It shares no code with the exact planner and is its judge in the tests. Plans are grown from the
output end, where the number of microbatches in flight of each stage is known.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product

import numpy as np

from diaulos.errors import InputError
from diaulos.models.graph import Option
from diaulos.planning.evaluate import RELATIVE_ROUNDING, fits
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem, PlanningResult, answer

_MOST_LAYERS = 10
_MOST_STEPS = 1_000_000


def exhaustive(problem: PlanningProblem) -> PlanningResult:
    """The best of all plans, by the rule of the exact planner; an `InputError` if it is too large.

    The rule: least time per sample, then fewest devices, fewest stages, least memory summed over
    all devices, then the first by layers and degrees, stage by stage from the input end.
    """
    layers = len(problem.graph.layers)
    if layers > _MOST_LAYERS:
        raise InputError(
            f"the graph has {layers} layers",
            f"the exhaustive planner tries every plan, of at most {_MOST_LAYERS} layers",
            "use the exact planner",
        )
    return answer(
        problem, lambda given: _Enumeration(given).best(), planner="exhaustive", proves=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """A stage with its best options."""

    layers: tuple[int, ...]
    """Indices in topological order."""
    data_parallel: int
    tensor_parallel: int
    options: tuple[Option, ...]
    seconds: float
    memory_bytes: float

    @property
    def devices(self) -> int:
        return self.data_parallel * self.tensor_parallel


@dataclass(slots=True)
class _Enumeration:
    """All plans of a problem; `stages` grow from the output end."""

    problem: PlanningProblem
    fastest_seconds: float = math.inf
    found: list[tuple[float, tuple[_Priced, ...]]] = field(default_factory=list)
    priced: dict[tuple[tuple[int, ...], int, int, int], _Priced | None] = field(
        default_factory=dict
    )
    steps: int = 0

    def best(self) -> Plan | None:
        """The plan that the rule picks."""
        self._grow(tuple(range(len(self.problem.graph.layers))), (), 0.0)
        limit = self.fastest_seconds * (1 + RELATIVE_ROUNDING)
        plans = [stages for seconds, stages in self.found if seconds <= limit]
        if not plans:
            return None
        plans = _least(plans, lambda plan: sum(stage.devices for stage in plan))
        plans = _least(plans, len)
        plans = _least(
            plans, lambda plan: math.fsum(stage.devices * stage.memory_bytes for stage in plan)
        )
        first = min(
            plans,
            key=lambda plan: [(s.layers, s.data_parallel, s.tensor_parallel) for s in plan],
        )
        return _plan(self.problem, first)

    def _grow(
        self, remaining: tuple[int, ...], stages: tuple[_Priced, ...], seconds: float
    ) -> None:
        if seconds > self.fastest_seconds * (1 + RELATIVE_ROUNDING):
            return
        if not remaining:
            self.fastest_seconds = min(self.fastest_seconds, seconds)
            self.found.append((seconds, stages))
            return
        for stage in self._last_stages(remaining, stages):
            rest = tuple(layer for layer in remaining if layer not in stage.layers)
            self._grow(rest, (stage, *stages), max(seconds, stage.seconds))

    def _last_stages(
        self, remaining: tuple[int, ...], later: Sequence[_Priced]
    ) -> Iterator[_Priced]:
        """Every stage that can run the end of the remaining layers."""
        problem = self.problem
        devices = problem.cluster.devices - sum(stage.devices for stage in later)
        replicas = problem.replicas_limit - sum(stage.data_parallel for stage in later)
        degrees = [
            (d, t)
            for d, t in product(problem.data_degrees, problem.tensor_degrees)
            if d * t <= devices and d <= replicas
        ]
        for layers in self._ends(remaining) if degrees else ():
            for d, t in degrees:
                self._count()
                in_flight = -(-(problem.replicas_limit - replicas + d) // d)
                key = (layers, d, t, in_flight)
                if key not in self.priced:
                    self.priced[key] = _price(problem, layers, d, t, in_flight)
                stage = self.priced[key]
                if stage is not None:
                    yield stage

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

    def _count(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise InputError(
                f"the problem has too many plans, more than {_MOST_STEPS} steps",
                "the exhaustive planner tries every plan",
                "use the exact planner",
            )


def _least(
    plans: list[tuple[_Priced, ...]], measure: Callable[[tuple[_Priced, ...]], float]
) -> list[tuple[_Priced, ...]]:
    """The plans of least measure, equal ones within rounding."""
    limit = min(map(measure, plans)) * (1 + RELATIVE_ROUNDING)
    return [plan for plan in plans if measure(plan) <= limit]


def _price(
    problem: PlanningProblem, layers: tuple[int, ...], d: int, t: int, in_flight: int
) -> _Priced | None:
    """The stage with its fastest options that fit, then least memory, then first in the source."""
    graph = problem.graph
    ids = [graph.topological_order[layer] for layer in layers]
    options = [problem.options(graph.layer(layer_id), t) for layer_id in ids]
    if not all(options):
        return None
    seconds = _sums(
        [_seconds(problem, ids, layer_id, option, d) for option in some]
        for layer_id, some in zip(ids, options, strict=True)
    )
    memory = _sums([option.memory_bytes(in_flight) for option in some] for some in options)
    fitting = [
        i for i, held in enumerate(memory) if fits(held, problem.cluster.largest_memory_bytes)
    ]
    if not fitting:
        return None
    for measure in (seconds, memory):
        limit = min(measure[i] for i in fitting) * (1 + RELATIVE_ROUNDING)
        fitting = [i for i in fitting if measure[i] <= limit]
    chosen = np.unravel_index(fitting[0], [len(some) for some in options])
    return _Priced(
        layers=layers,
        data_parallel=d,
        tensor_parallel=t,
        options=tuple(some[int(i)] for some, i in zip(options, chosen, strict=True)),
        seconds=seconds[fitting[0]],
        memory_bytes=memory[fitting[0]],
    )


def _sums(amounts: Iterable[list[float]]) -> list[float]:
    """One sum for each way to pick one amount of each list; the first list varies slowest."""
    sums: list[float] = reduce(np.add.outer, map(np.array, amounts)).ravel().tolist()
    return sums


def _seconds(
    problem: PlanningProblem, stage: Sequence[int], layer_id: int, option: Option, d: int
) -> float:
    """What a layer with an option adds to the time per sample of a stage (planning model)."""
    amounts = []
    for edge in problem.graph.edges:
        if edge.target == layer_id and edge.source not in stage:
            amounts += [edge.bytes, option.input_sync_bytes.get(edge.source, 0.0)]
        if edge.source == layer_id and edge.target not in stage:
            amounts += [edge.bytes, option.output_sync_bytes.get(edge.target, 0.0)]
    reduced = 4 * (d - 1) * option.parameter_bytes / d / problem.microbatches
    sent = (
        2 * math.fsum(amounts) / d + reduced
    ) / problem.cluster.slowest_link.bandwidth_bytes_per_second
    return sent + option.seconds / d


def _plan(problem: PlanningProblem, stages: Sequence[_Priced]) -> Plan:
    order = problem.graph.topological_order
    return Plan(
        stages=tuple(
            Stage(
                layers=tuple(order[layer] for layer in stage.layers),
                data_parallel=stage.data_parallel,
                tensor_parallel=stage.tensor_parallel,
                options=_names(order, stage),
            )
            for stage in stages
        ),
        microbatches=problem.microbatches,
    )


def _names(order: Sequence[int], stage: _Priced) -> Mapping[int, str]:
    return {
        order[layer]: option.name for layer, option in zip(stage.layers, stage.options, strict=True)
    }
