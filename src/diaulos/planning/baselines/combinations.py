"""Every way to choose the options of a stage, priced straight from the definition in `evaluate`.

Amounts are arrays with an entry for each combination; the first layer's options vary slowest.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.clusters.cluster import Link
from diaulos.models.graph import FixedMemory, Option
from diaulos.planning.evaluation.costs import Collective
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.evaluation.pipelining import least_weight_backward_seconds
from diaulos.planning.evaluation.places import StagePlace
from diaulos.planning.problem import PlanningProblem

Amounts = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What crosses one border of a stage, one way and for one microbatch."""

    messages: int
    size_bytes: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Combinations:
    """The amounts of a stage that do not depend on where it stands or in how many copies."""

    options: tuple[tuple[Option, ...], ...]
    """Of each layer of the stage."""
    seconds: Amounts
    weight_backward_seconds: float
    parameter_bytes: Amounts
    entering: Border
    leaving: Border
    activation_bytes: Amounts
    optimizer_bytes: Amounts
    other_bytes: Amounts

    def chosen(self, combination: int) -> tuple[Option, ...]:
        """The option of each layer in a combination."""
        place = np.unravel_index(combination, [len(some) for some in self.options])
        return tuple(some[int(i)] for some, i in zip(self.options, place, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the combinations cost on some devices with some degree."""

    microbatch_seconds: Amounts
    """U, see `pipelining`."""
    reduction_seconds: Amounts
    """R, once per batch."""
    weight_backward_seconds: float
    memory_bytes: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Options of a stage that may be part of the best plan."""

    options: tuple[Option, ...]
    exposed_seconds: float
    """L, see `pipelining`."""
    remaining_seconds: float
    """m*U - L + R."""
    memory_bytes: float


def combinations(
    problem: PlanningProblem, layers: Sequence[int], tensor_parallel: int
) -> Combinations | None:
    """The combinations of a stage of these layer ids; None if some layer has no option."""
    graph = problem.graph
    options = tuple(problem.options(graph.layer(i), tensor_parallel) for i in layers)
    if not all(options):
        return None
    grid = _Grid(tuple(layers), options)
    versions = problem.pipelining.weight_versions - 1

    def other_bytes(memory: FixedMemory) -> float:
        shares = {**memory.by_kind(), "versions": versions * memory.versions_bytes}
        apart = ("optimizer", "temporary") if problem.costs.temporary_once else ("optimizer",)
        return sum(amount for kind, amount in shares.items() if kind not in apart)

    other = grid.total([[other_bytes(o.fixed_memory) for o in some] for some in options])
    if problem.costs.temporary_once:
        other = other + grid.largest(
            [[o.fixed_memory.temporary_bytes for o in some] for some in options]
        )
    entering, leaving = _borders(problem, grid)
    return Combinations(
        options=options,
        seconds=grid.total([[o.seconds for o in some] for some in options]),
        weight_backward_seconds=sum(
            least_weight_backward_seconds(graph.layer(i), tensor_parallel) for i in layers
        ),
        parameter_bytes=grid.total([[o.parameter_bytes for o in some] for some in options]),
        entering=entering,
        leaving=leaving,
        activation_bytes=grid.total([[o.activation_bytes for o in some] for some in options]),
        optimizer_bytes=grid.total(
            [[o.fixed_memory.optimizer_bytes for o in some] for some in options]
        ),
        other_bytes=other,
    )


def price(
    problem: PlanningProblem,
    stage: Combinations,
    place: StagePlace,
    *,
    data_parallel: int,
    total: int,
) -> Prices:
    """What all combinations cost; `total` is what `Pipelining.totals` says of the stage."""
    costs, d = problem.costs, data_parallel
    in_flight = problem.pipelining.in_flight(total, d, problem.microbatches)
    shards = d if problem.shard_optimizer else 1
    memory = stage.other_bytes + stage.optimizer_bytes / shards + costs.reserve_bytes
    memory = memory + in_flight * stage.activation_bytes
    if costs.counts_buffers:
        memory = memory + 2 * (stage.entering.size_bytes + stage.leaving.size_bytes)
    return Prices(
        microbatch_seconds=stage.seconds / place.group.speed
        + _exchange_seconds(problem, stage.entering, place.link_before)
        + _exchange_seconds(problem, stage.leaving, place.link_behind),
        reduction_seconds=_reduction_seconds(problem, stage.parameter_bytes, place.link_inside, d),
        weight_backward_seconds=stage.weight_backward_seconds / place.group.speed,
        memory_bytes=memory,
    )


def choices(
    problem: PlanningProblem, some: Combinations, prices: Prices, d: int, limit_bytes: float
) -> Iterator[Choice]:
    """The combinations that fit and may be part of the best plan.

    Without a flush the seconds of a batch decide. With one, seconds of a microbatch and of the
    reduction count differently for each stage; no combination is left out that has less of one.
    """
    per_replica = problem.microbatches / d
    fitting = np.flatnonzero(prices.memory_bytes <= limit_bytes * (1 + RELATIVE_ROUNDING))
    measures = prices.microbatch_seconds, prices.reduction_seconds
    if not problem.pipelining.flushes:
        measures = per_replica * measures[0] + measures[1], np.zeros(len(measures[0]))
    for place in _undominated(*measures, prices.memory_bytes, fitting):
        seconds = float(prices.microbatch_seconds[place])
        exposed = problem.pipelining.exposed_seconds(seconds, prices.weight_backward_seconds)
        yield Choice(
            options=some.chosen(place),
            exposed_seconds=exposed,
            remaining_seconds=per_replica * seconds
            - exposed
            + float(prices.reduction_seconds[place]),
            memory_bytes=float(prices.memory_bytes[place]),
        )


def _undominated(
    first: Amounts, second: Amounts, memory: Amounts, fitting: NDArray[np.int64]
) -> Iterator[int]:
    """Places of which no other has less of both measures; of alike ones that of least memory."""
    least = math.inf
    for place in fitting[np.lexsort((second[fitting], first[fitting]))]:
        if second[place] >= least * (1 - RELATIVE_ROUNDING):
            continue
        least = second[place]
        limits = [amounts[place] * (1 + RELATIVE_ROUNDING) for amounts in (first, second)]
        alike = fitting[(first[fitting] <= limits[0]) & (second[fitting] <= limits[1])]
        lightest = memory[alike].min() * (1 + RELATIVE_ROUNDING)
        yield int(alike[memory[alike] <= lightest][0])


def _exchange_seconds(problem: PlanningProblem, border: Border, link: Link) -> Amounts:
    latency = link.latency_seconds if problem.costs.counts_latency else 0.0
    directions = 1 if link.duplex else 2
    sent = directions * border.size_bytes / link.bandwidth_bytes_per_second
    return sent + 2 * latency * border.messages


def _reduction_seconds(
    problem: PlanningProblem, parameter_bytes: Amounts, link: Link, d: int
) -> Amounts:
    """A ring passes (d-1)/d of the bytes round twice, a tree all bytes up and down."""
    if problem.costs.collective is Collective.RING:
        steps, share = d - 1, (d - 1) / d
    else:
        steps, share = (d - 1).bit_length(), float(d > 1)
    latency = link.latency_seconds if problem.costs.counts_latency else 0.0
    directions = 1 if link.duplex else 2
    sent = directions * 2 * share * parameter_bytes / link.bandwidth_bytes_per_second
    return sent + 2 * steps * latency


class _Grid:
    """All combinations of the options of some layers."""

    def __init__(self, layers: tuple[int, ...], options: tuple[tuple[Option, ...], ...]) -> None:
        self.layers, self.options = layers, options
        self._chosen = np.indices([len(some) for some in options]).reshape(len(options), -1)

    def spread(self, layer: int, amounts: Sequence[float]) -> Amounts:
        """An amount of each option of a layer, given by its place, for each combination."""
        result: Amounts = np.array(amounts, np.float64)[self._chosen[layer]]
        return result

    def total(self, amounts: Sequence[Sequence[float]]) -> Amounts:
        """The sum over layers of an amount of their options."""
        spread = [self.spread(layer, some) for layer, some in enumerate(amounts)]
        result: Amounts = np.sum(spread, axis=0)
        return result

    def largest(self, amounts: Sequence[Sequence[float]]) -> Amounts:
        """The largest over layers of an amount of their options."""
        spread = [self.spread(layer, some) for layer, some in enumerate(amounts)]
        result: Amounts = np.max(spread, axis=0)
        return result


def _borders(problem: PlanningProblem, grid: _Grid) -> tuple[Border, Border]:
    """What enters and what leaves, by the tensors' sources."""
    place = {layer_id: i for i, layer_id in enumerate(grid.layers)}
    entering: dict[int, list[Amounts]] = {}
    leaving: dict[int, list[Amounts]] = {}
    for edge in problem.graph.edges:
        if edge.target in place and edge.source not in place:
            near = place[edge.target]
            sync = [o.input_sync_bytes.get(edge.source, 0.0) for o in grid.options[near]]
            tensors = entering.setdefault(edge.source, [])
        elif edge.source in place and edge.target not in place:
            near = place[edge.source]
            sync = [o.output_sync_bytes.get(edge.target, 0.0) for o in grid.options[near]]
            tensors = leaving.setdefault(edge.source, [])
        else:
            continue
        tensors.append(grid.spread(near, [edge.bytes + amount for amount in sync]))
    nothing = grid.spread(0, [0.0] * len(grid.options[0]))
    return _border(problem, entering, nothing), _border(problem, leaving, nothing)


def _border(
    problem: PlanningProblem, tensors: dict[int, list[Amounts]], nothing: Amounts
) -> Border:
    if problem.costs.shared_tensors_once:
        messages = [np.max(some, axis=0) for some in tensors.values()]
    else:
        messages = [amounts for some in tensors.values() for amounts in some]
    return Border(messages=len(messages), size_bytes=sum(messages, nothing))
