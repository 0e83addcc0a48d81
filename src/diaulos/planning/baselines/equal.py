"""The equal-partition planner of PipeDream-2BW (Narayanan et al., ICML 2021, appendix A.2).

Every stage has the same degrees and an equal share of the layers, and recomputes everything or
nothing. Priced in Piper's cost model, as the baseline of its paper; all plans of this form are
tried.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from diaulos.models.graph import LayerGraph, Option
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING, fits
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import (
    PlanningProblem,
    PlanningResult,
    SearchResult,
    answer,
    refuse_all_but_piper,
)

Amounts = NDArray[np.float64]
_Split = tuple[tuple[int, ...], ...]


def equal(problem: PlanningProblem) -> PlanningResult:
    """The fastest plan of equal stages.

    Where most layers are repetitions of one in a row, those are dealt to the stages, and the
    layers before and after them go to the first and last stage or to stages of their own;
    elsewhere all layers are dealt, in topological order. Among equally fast plans: fewest devices,
    fewest stages, least memory summed over all devices, then the smallest tensor-parallel degree,
    without recomputation.
    """
    refuse_all_but_piper(problem, planner="equal")
    return answer(
        problem,
        lambda given: SearchResult(plan=_search(given), proven_optimal=False),
        planner="equal",
    )


def equal_splits(graph: LayerGraph, most_stages: int) -> Iterator[_Split]:
    """The ways to cut a graph into equal stages of layer ids, from one stage on."""
    repeated = _repeated_layers(graph)
    if repeated is None:
        order = _stack_order(graph)
        for stages in range(1, min(most_stages, len(order)) + 1):
            yield _deal(order, stages)
        return
    ends = _ends(graph, repeated)
    for stages in range(1, min(most_stages, len(repeated)) + 1):
        dealt = _deal(repeated, stages)
        yield _with_ends_inside(dealt, *ends)
        if any(ends) and stages + sum(map(bool, ends)) <= most_stages:
            yield tuple(part for part in (ends[0], *dealt, ends[1]) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prices:
    """What every layer costs with one choice of options, in the order of the graph."""

    tensor_parallel: int
    options: tuple[Option, ...]

    def per_layer(self, name: str) -> Amounts:
        return np.array([getattr(option, name) for option in self.options], np.float64)

    def communication_bytes(self, graph: LayerGraph, stage_of: NDArray[np.int64]) -> Amounts:
        """Bytes over the borders of each stage, one way."""
        amounts = np.zeros(int(stage_of.max()) + 1)
        for edge in graph.edges:
            source, target = graph.positions[edge.source], graph.positions[edge.target]
            if stage_of[source] != stage_of[target]:
                sent = self.options[source].output_sync_bytes.get(edge.target, 0.0)
                received = self.options[target].input_sync_bytes.get(edge.source, 0.0)
                amounts[stage_of[source]] += edge.bytes + sent
                amounts[stage_of[target]] += edge.bytes + received
        return amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """An equal plan with its price."""

    split: _Split
    prices: _Prices
    data_parallel: int
    seconds: float
    memory_bytes: float

    @property
    def measures(self) -> tuple[float, float, float, float]:
        """What is compared, in this order."""
        stages = len(self.split)
        devices = stages * self.data_parallel * self.prices.tensor_parallel
        return self.seconds, devices, stages, devices / stages * self.memory_bytes


def _search(problem: PlanningProblem) -> Plan | None:
    candidates = list(_candidates(problem))
    if not candidates:
        return None
    for measure in range(4):
        limit = min(c.measures[measure] for c in candidates) * (1 + RELATIVE_ROUNDING)
        candidates = [c for c in candidates if c.measures[measure] <= limit]
    return _plan(problem, candidates[0])


def _candidates(problem: PlanningProblem) -> Iterator[_Candidate]:
    splits = list(equal_splits(problem.graph, problem.replicas_limit))
    for tensor_parallel, recompute in product(problem.tensor_degrees, (False, True)):
        prices = _prices(problem, tensor_parallel, recompute=recompute)
        if prices is not None:
            for split in splits:
                yield from _candidates_of_split(problem, prices, split)


def _candidates_of_split(
    problem: PlanningProblem, prices: _Prices, split: _Split
) -> Iterator[_Candidate]:
    """The split with every data-parallel degree that the limits allow."""
    positions = problem.graph.positions
    stage_of = np.empty(len(positions), np.int64)
    for number, layers in enumerate(split):
        stage_of[[positions[layer] for layer in layers]] = number

    def over_stages(name: str) -> Amounts:
        sums: Amounts = np.bincount(stage_of, weights=prices.per_layer(name)).astype(np.float64)
        return sums

    # With equal degrees a stage has as many microbatches in flight as stages from it on.
    in_flight = np.arange(len(split), 0, -1)
    memory = over_stages("activation_bytes") * in_flight + over_stages("fixed_bytes")
    if not fits(memory.max(), problem.cluster.largest_memory_bytes):
        return
    seconds, parameters = over_stages("seconds"), over_stages("parameter_bytes")
    sent = 2 * prices.communication_bytes(problem.graph, stage_of)
    for d in problem.data_degrees:
        replicas = d * len(split)
        if replicas > problem.replicas_limit:
            break
        if replicas * prices.tensor_parallel <= problem.cluster.devices:
            reduced = 4 * (d - 1) * parameters / d / problem.microbatches
            transfer = (
                sent / d + reduced
            ) / problem.cluster.slowest_link.bandwidth_bytes_per_second
            yield _Candidate(
                split=split,
                prices=prices,
                data_parallel=d,
                seconds=float((transfer + seconds / d).max()),
                memory_bytes=float(memory.sum()),
            )


def _prices(problem: PlanningProblem, tensor_parallel: int, *, recompute: bool) -> _Prices | None:
    """The fastest option of each layer with recomputation, where it has one, or without."""
    chosen = []
    for layer in problem.graph.layers:
        options = problem.options(layer, tensor_parallel)
        wanted = [option for option in options if option.recompute == recompute]
        fallback = [option for option in options if not option.recompute]
        if not wanted and not fallback:
            return None
        chosen.append(min(wanted or fallback, key=lambda option: option.seconds))
    if recompute and not any(option.recompute for option in chosen):
        return None
    return _Prices(tensor_parallel=tensor_parallel, options=tuple(chosen))


def _plan(problem: PlanningProblem, candidate: _Candidate) -> Plan:
    graph = problem.graph
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    names = {
        layer.id: option.name
        for layer, option in zip(graph.layers, candidate.prices.options, strict=True)
    }
    return Plan(
        stages=tuple(
            Stage(
                layers=tuple(sorted(layers, key=index.__getitem__)),
                data_parallel=candidate.data_parallel,
                tensor_parallel=candidate.prices.tensor_parallel,
                options={layer: names[layer] for layer in layers},
            )
            for layers in candidate.split
        ),
        microbatches=problem.microbatches,
    )


def _deal(layers: Sequence[int], stages: int) -> _Split:
    """Layers in equal runs; where they do not divide, the last stages take one more."""
    share, more = divmod(len(layers), stages)
    sizes = [share] * (stages - more) + [share + 1] * more
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(tuple(layers[start:end]) for start, end in pairwise(ends))


def _with_ends_inside(dealt: _Split, before: tuple[int, ...], after: tuple[int, ...]) -> _Split:
    first, *middle = dealt
    parts = [before + first, *middle]
    parts[-1] += after
    return tuple(parts)


def _stack_order(graph: LayerGraph) -> list[int]:
    """The topological order of Piper's code: a stack, filled in the order of the file."""
    missing = {layer_id: len(before) for layer_id, before in graph.predecessors.items()}
    stack = [layer.id for layer in graph.layers if missing[layer.id] == 0]
    order = []
    while stack:
        layer_id = stack.pop()
        order.append(layer_id)
        for successor in graph.successors[layer_id]:
            missing[successor] -= 1
            if missing[successor] == 0:
                stack.append(successor)
    return order


def _repeated_layers(graph: LayerGraph) -> list[int] | None:
    """The repetitions of one layer that make up most of a graph, where they stand in a row.

    Layers are repetitions if their names are alike but for numbers.
    """
    kinds = {layer.id: re.sub(r"[0-9]+", "#", layer.name) for layer in graph.layers if layer.name}
    if not kinds:
        return None
    kind, count = Counter(kinds.values()).most_common(1)[0]
    repeated = [i for i in graph.topological_order if kinds.get(i) == kind]
    in_a_row = all(
        [s for s in graph.successors[layer] if s in set(repeated)] == [following]
        for layer, following in pairwise(repeated)
    )
    if 2 * count <= len(graph.layers) or not in_a_row:
        return None
    between = _ancestors(graph, repeated[-1]) - _ancestors(graph, repeated[0]) - set(repeated)
    if any(_ancestors(graph, layer) & set(repeated) for layer in between):
        return None
    return repeated


def _ends(graph: LayerGraph, repeated: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The layers that some repeated layer needs, and all others, in topological order."""
    before = _ancestors(graph, repeated[-1])
    others = [layer for layer in graph.topological_order if layer not in set(repeated)]
    return (
        tuple(layer for layer in others if layer in before),
        tuple(layer for layer in others if layer not in before),
    )


def _ancestors(graph: LayerGraph, layer_id: int) -> set[int]:
    """All layers that a layer needs, directly or not."""
    found: set[int] = set()
    stack = [layer_id]
    while stack:
        new = set(graph.predecessors[stack.pop()]) - found
        found |= new
        stack += new
    return found
