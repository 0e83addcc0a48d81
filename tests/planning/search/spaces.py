"""Small search spaces, and all their stages and plans made one by one: oracles for the search."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from numpy.typing import NDArray

from diaulos.errors import InputError
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.evaluation.pipelining import PIPELININGS, STEADY
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.stage_costs.space import Space, build_space
from tests.planning.problems import detailed_problems, problems

FLUSHES = [some for some in PIPELININGS.values() if some.flushes]


def single_options(problem: PlanningProblem) -> PlanningProblem:
    """The problem with one option for each layer and degree, so that nothing is relaxed."""
    layers = tuple(
        replace(layer, options=tuple({o.tensor_parallel: o for o in layer.options}.values()))
        for layer in problem.graph.layers
    )
    return replace(problem, graph=replace(problem.graph, layers=layers), recompute=True)


def flush_problems(*, most_layers: int = 4) -> st.SearchStrategy[PlanningProblem]:
    """Problems of Piper's model with any schedule that flushes."""
    plain = problems(most_layers=most_layers)
    return st.builds(lambda p, s: replace(p, pipelining=s), plain, st.sampled_from(FLUSHES))


def steady_problems(*, most_layers: int = 4) -> st.SearchStrategy[PlanningProblem]:
    """Problems without a flush, of Piper's model or on nodes with any costs."""
    detailed = detailed_problems(most_layers=min(most_layers, 3))
    return st.one_of(
        problems(most_layers=most_layers), detailed.map(lambda p: replace(p, pipelining=STEADY))
    )


def any_problems(*, most_layers: int = 4) -> st.SearchStrategy[PlanningProblem]:
    """Problems of every kind."""
    return st.one_of(
        problems(most_layers=most_layers),
        flush_problems(most_layers=most_layers),
        detailed_problems(most_layers=min(most_layers, 3)),
    )


@st.composite
def spaces(draw: st.DrawFn, some: st.SearchStrategy[PlanningProblem] | None = None) -> Space:
    """The spaces of problems that have one, by default of any kind."""
    try:
        space = build_space(draw(any_problems() if some is None else some))
    except InputError:
        space = None  # The options of some layer cannot be compared one by one.
    assume(space is not None)
    assert space is not None
    return space


def space_of(problem: PlanningProblem) -> Space:
    """The space of a problem that has one."""
    space = build_space(problem)
    assert space is not None
    return space


def rows_of(space: Space, pair: int) -> list[int]:
    """Layers of a stage, by their indices in topological order."""
    members = space.downsets.members
    inside = members[space.pairs.outer[pair]] & ~members[space.pairs.inner[pair]]
    return np.flatnonzero(inside).tolist()


@dataclass(frozen=True, kw_only=True)
class AllChoices:
    """Every choice of the options of a stage in one setting, in the order of the source."""

    options: list[tuple[int, ...]]
    times: list[int]
    """Of one microbatch with the cut edges, in units."""
    activation_bytes: NDArray[np.float64]
    once_bytes: NDArray[np.float64]
    limit_bytes: float
    """Less the buffers."""

    def fitting(self, in_flight: int, *, rounding: float = RELATIVE_ROUNDING) -> NDArray[np.int64]:
        """The choices that fit with so many microbatches in flight."""
        limit = self.limit_bytes + rounding * abs(self.limit_bytes)
        return np.flatnonzero(self.activation_bytes * in_flight + self.once_bytes <= limit)

    def least_time(self, in_flight: int, *, rounding: float = RELATIVE_ROUNDING) -> int | None:
        """Of the fastest choice that fits; None where none does."""
        times = [self.times[place] for place in self.fitting(in_flight, rounding=rounding)]
        return min(times, default=None)


def all_choices(space: Space, setting: int, pair: int) -> AllChoices | None:
    """The choices for a stage; None where some layer has no option in the setting."""
    layers, rows = space.settings[setting].layers, rows_of(space, pair)
    if layers.missing[rows].any():
        return None
    options = list(product(*(range(len(layers.options[row])) for row in rows)))
    crossing = [_crossing(space, setting, dict(zip(rows, some, strict=True))) for some in options]
    chosen = np.array(options)
    computing = [sum(layers.times[rows, some].tolist()) for some in chosen]
    return AllChoices(
        options=options,
        times=[work + cut for work, (cut, _) in zip(computing, crossing, strict=True)],
        activation_bytes=np.array([layers.activation_bytes[rows, c].sum() for c in chosen]),
        once_bytes=np.array(
            [
                layers.fixed_bytes[rows, c].sum() + layers.temporary_bytes[rows, c].max()
                for c in chosen
            ]
        ),
        limit_bytes=layers.memory_limit_bytes - crossing[0][1],
    )


def _crossing(space: Space, setting: int, chosen: dict[int, int]) -> tuple[int, float]:
    """Time of the cut edges of a stage with some options, and bytes of its buffers."""
    layers, costs = space.settings[setting].layers, space.problem.costs
    tensors: dict[object, tuple[int, float]] = {}
    for edge, (source, target) in enumerate(space.edge_ends):
        if (source in chosen) == (target in chosen):
            continue
        if target in chosen:
            time = int(layers.edge_in[edge, chosen[target]])
            tensor = ("in", source if costs.shared_tensors_once else edge)
            size = float(layers.edge_in_bytes[edge])
        else:
            time = int(layers.edge_out[edge, chosen[source]])
            tensor = ("out", source if costs.shared_tensors_once else edge)
            size = float(layers.edge_out_bytes[edge])
        known = tensors.get(tensor, (0, 0.0))
        tensors[tensor] = (max(time, known[0]), max(size, known[1]))
    buffers = 2 * sum(size for _, size in tensors.values()) if costs.counts_buffers else 0.0
    return sum(time for time, _ in tensors.values()), buffers


@dataclass(frozen=True, kw_only=True)
class EveryPlan:
    """All plans of a space on a flat cluster whose stages fit, priced exactly."""

    plans: list[tuple[Placement, ...]]
    values: list[Fraction]
    """Of the stage that a threshold is hardest for."""
    latencies: list[int]

    @staticmethod
    def of(judge: Judge) -> "EveryPlan":
        """Try all; small graphs only."""
        found = [plan for plan in _plans(judge.space) if _fits(judge, plan)]
        return EveryPlan(
            plans=found,
            values=[max(judge.value(stage) for stage in plan) for plan in found],
            latencies=[sum(judge.latency(stage) for stage in plan) for plan in found],
        )

    def within(self, time: Fraction, *, strict: bool = False) -> list[tuple[Placement, ...]]:
        """The plans that keep to a threshold."""
        return [
            plan
            for plan, value in zip(self.plans, self.values, strict=True)
            if value < time or (value == time and not strict)
        ]


def size_of(plan: tuple[Placement, ...]) -> tuple[int, int]:
    """Devices and stages."""
    return plan[0].end, len(plan)


def _fits(judge: Judge, plan: tuple[Placement, ...]) -> bool:
    return all(judge.value(stage) is not None for stage in plan)


def _plans(space: Space) -> Iterator[tuple[Placement, ...]]:
    assert space.problem.cluster.is_flat
    pipelining, microbatches = space.problem.pipelining, space.problem.microbatches
    for chain in _chains(space, 0, 0, 0):
        degrees = [space.degrees[index] for _, index in chain]
        totals = pipelining.totals([degree.data_parallel for degree in degrees])
        ends = np.cumsum([degree.devices for degree in degrees[::-1]])[::-1].tolist()
        yield tuple(
            Placement(
                pair=pair,
                degree=index,
                in_flight=pipelining.in_flight(total, degree.data_parallel, microbatches),
                end=end,
            )
            for (pair, index), degree, total, end in zip(chain, degrees, totals, ends, strict=True)
        )


def _chains(
    space: Space, downset: int, total: int, devices: int
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Pairs and degrees of the stages that can run what a downset leaves, from the input end."""
    if downset == len(space.downsets) - 1:
        yield ()
    for pair in np.flatnonzero(space.pairs.inner == downset).tolist():
        for index, degree in enumerate(space.degrees):
            now, taken = total + degree.data_parallel, devices + degree.devices
            missing = space.settings[degree.setting].layers.missing[rows_of(space, pair)]
            if now <= space.replicas_limit and taken <= space.devices and not missing.any():
                for before in _chains(space, int(space.pairs.outer[pair]), now, taken):
                    yield (*before, (pair, index))
