"""What each layer costs the stage it stands in, as arrays of whole numbers.

A stage with replicas d and shards t takes (times + communication + (d-1)*reduction) / d: the
product with d is what the search compares, since it is a sum over layers and edges. Layers are
rows, in topological order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.models.graph import Option
from diaulos.planning.evaluate import RELATIVE_ROUNDING
from diaulos.planning.fixed_point import (
    FixedPoint,
    LimitedFixedPoint,
    fixed_point_below,
    limited_fixed_point,
)
from diaulos.planning.increments import Units
from diaulos.planning.problem import PlanningProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Degrees at which the options of each layer compare alike.

    All data-parallel degrees, where the options of a layer reduce the same parameters; else one.
    """

    tensor_parallel: int
    data_degrees: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts:
    """Costs of all layers and edges in one setting, in units of time and of memory.

    Layers with fewer options than others repeat their first; those that have none at this degree
    are `missing` and cost nothing.
    """

    setting: Setting
    options: tuple[tuple[Option, ...], ...]
    missing: NDArray[np.bool_]
    times: Units
    """Of each option (layers, options)."""
    activation_bytes: NDArray[np.float64]
    """Of each microbatch in flight (layers, options)."""
    fixed_bytes: NDArray[np.float64]
    """Held once (layers, options)."""
    memory_units: LimitedFixedPoint
    reduction: Units
    """Time for each replica beyond the first (layers)."""
    edge_in: Units
    """Time that a cut edge costs the stage of its target, at least (edges)."""
    edge_out: Units
    """Time that a cut edge costs the stage of its source, at least (edges)."""
    edge_in_extra: Units
    """What each option of the target costs more than that (edges, options)."""
    edge_out_extra: Units
    """What each option of the source costs more than that (edges, options)."""

    def memory(self, in_flight: NDArray[np.int64] | int) -> Units:
        """Memory of each option with so many microbatches in flight (..., layers, options)."""
        return self.memory_units.units(self.activation_bytes * in_flight + self.fixed_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostUnits:
    """The units of a problem."""

    time: FixedPoint
    memory: LimitedFixedPoint


def settings(problem: PlanningProblem) -> Iterator[Setting]:
    """The settings that cover all degrees of a problem."""
    degrees = problem.data_degrees
    for t in problem.tensor_degrees:
        alike = all(
            len({option.parameter_bytes for option in problem.options(layer, t)}) <= 1
            for layer in problem.graph.layers
        )
        for group in [degrees] if alike else [(d,) for d in degrees]:
            yield Setting(tensor_parallel=t, data_degrees=group)


def cost_units(problem: PlanningProblem) -> CostUnits:
    """Units so fine that the sum of all that a problem can add up just fits into 64 bits."""
    bandwidth = problem.cluster.slowest_link.bandwidth_bytes_per_second
    most_replicas, most_in_flight = problem.data_degrees[-1], problem.replicas_limit
    seconds = memory = 0.0
    for layer in problem.graph.layers:
        options = [o for t in problem.tensor_degrees for o in problem.options(layer, t)]
        if not options:
            continue
        seconds += max(option.seconds for option in options)
        seconds += most_replicas * max(_reduction_seconds(problem, o) for o in options)
        sync_bytes = max(
            sum(o.input_sync_bytes.values()) + sum(o.output_sync_bytes.values()) for o in options
        )
        seconds += 2 * sync_bytes / bandwidth
        memory += max(option.memory_bytes(most_in_flight) for option in options)
    seconds += sum(4 * edge.bytes for edge in problem.graph.edges) / bandwidth
    limit_bytes = problem.cluster.largest_memory_bytes * (1 + RELATIVE_ROUNDING)
    layers = len(problem.graph.layers)
    return CostUnits(
        time=fixed_point_below(seconds),
        memory=limited_fixed_point(limit_bytes, addends=layers, total=memory),
    )


def layer_costs(problem: PlanningProblem, setting: Setting, units: CostUnits) -> LayerCosts:
    """The costs of all layers and edges in a setting."""
    graph, t = problem.graph, setting.tensor_parallel
    options = tuple(problem.options(graph.layer(i), t) for i in graph.topological_order)
    width = max(1, *map(len, options))
    filled = [_filled(layer_options, width) for layer_options in options]
    reduction = np.array([[_reduction_seconds(problem, o) for o in row] for row in filled])
    seconds = np.array([[o.seconds for o in row] for row in filled])
    shared = len(setting.data_degrees) > 1
    if not shared:
        seconds += (setting.data_degrees[0] - 1) * reduction
    edge_in, edge_in_extra = _edge_costs(problem, filled, units, entering=True)
    edge_out, edge_out_extra = _edge_costs(problem, filled, units, entering=False)
    return LayerCosts(
        setting=setting,
        options=options,
        missing=np.array([not layer_options for layer_options in options]),
        times=units.time.units(seconds),
        activation_bytes=np.array([[o.activation_bytes for o in row] for row in filled]),
        fixed_bytes=np.array([[o.fixed_bytes for o in row] for row in filled]),
        memory_units=units.memory,
        reduction=units.time.units(reduction[:, 0] if shared else 0.0 * reduction[:, 0]),
        edge_in=edge_in,
        edge_out=edge_out,
        edge_in_extra=edge_in_extra,
        edge_out_extra=edge_out_extra,
    )


_FREE = Option(name="none", seconds=0.0, parameter_bytes=0.0, activation_bytes=0.0)


def _filled(options: tuple[Option, ...], width: int) -> list[Option]:
    filler = options[0] if options else _FREE
    return [*options, *[filler] * (width - len(options))]


def _reduction_seconds(problem: PlanningProblem, option: Option) -> float:
    """Seconds per microbatch and replica beyond the first, times the degree (see the module)."""
    bandwidth = problem.cluster.slowest_link.bandwidth_bytes_per_second
    return 4 * option.parameter_bytes / problem.microbatches / bandwidth


def _edge_costs(
    problem: PlanningProblem, options: list[list[Option]], units: CostUnits, *, entering: bool
) -> tuple[Units, Units]:
    graph, bandwidth = problem.graph, problem.cluster.slowest_link.bandwidth_bytes_per_second
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    seconds = np.zeros((len(graph.edges), len(options[0])))
    for row, edge in enumerate(graph.edges):
        near, far = (edge.target, edge.source) if entering else (edge.source, edge.target)
        for column, option in enumerate(options[index[near]]):
            sync = option.input_sync_bytes if entering else option.output_sync_bytes
            seconds[row, column] = 2 * (edge.bytes + sync.get(far, 0.0)) / bandwidth
    costs = units.time.units(seconds)
    least = costs.min(axis=1)
    return least, costs - least[:, None]
