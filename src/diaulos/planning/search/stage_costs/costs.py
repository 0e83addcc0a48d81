"""What each layer and each edge costs the stage it stands in, as arrays.

A stage with replicas d takes, for all replicas together (that is d times its time per sample),

    times + edges + reduction_factor(d) * reduction + reduction_constant(d),

sums over its layers and cut edges in whole units of time: what the search adds up and compares.
Layers are rows, in topological order.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.clusters.cluster import DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.models.graph import Option
from diaulos.planning.evaluation.costs import Collective
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.stage_costs.fixed_point import FixedPoint, Units, fixed_point_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What decides the costs of a stage beside its layers: degrees, devices and links.

    All data-parallel degrees are in one setting where the options of each layer compare alike at
    all of them; else each has its own.
    """

    tensor_parallel: int
    data_degrees: tuple[int, ...]
    group: int
    """Index of the device group."""
    spans_nodes: bool
    """Whether the stage stands on several nodes."""
    enters_node: bool
    """Whether the border to the stage before is a border of nodes."""
    leaves_node: bool
    """Whether the border to the stage behind is a border of nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts:
    """Costs of all layers and edges in one setting.

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
    """Held once, without `temporary_bytes` (layers, options)."""
    temporary_bytes: NDArray[np.float64]
    """Of which a stage holds the largest only (layers, options)."""
    reduction: Units
    """Time for each unit of `reduction_factors` (layers); where the options of a layer differ in
    it, it is part of their `times`."""
    edge_in: Units
    """Time that a cut edge costs the stage of its target (edges, options of the target)."""
    edge_out: Units
    """Time that a cut edge costs the stage of its source (edges, options of the source)."""
    edge_in_bytes: NDArray[np.float64]
    """Received over each cut edge, at most (edges)."""
    edge_out_bytes: NDArray[np.float64]
    """Sent over each cut edge, at most (edges)."""
    options_synchronise_alike: bool
    """Whether the options of every layer cost the same on every edge."""
    memory_limit_bytes: float
    reduction_factors: NDArray[np.int64]
    """By position in `setting.data_degrees`."""
    reduction_constants: Units
    """By position in `setting.data_degrees`."""

    @property
    def unfit(self) -> NDArray[np.bool_]:
        """The layers that have no option that fits a device, be it with one microbatch alone."""
        least = (self.activation_bytes + self.fixed_bytes + self.temporary_bytes).min(axis=1)
        too_much = least > self.memory_limit_bytes * (1 + RELATIVE_ROUNDING)
        unfit: NDArray[np.bool_] = self.missing | too_much
        return unfit


def settings(problem: PlanningProblem) -> Iterator[Setting]:
    """The settings that cover all degrees and places of a problem."""
    for t in problem.tensor_degrees:
        together = not problem.shard_optimizer and _reduce_alike(problem, t)
        degrees = problem.data_degrees
        for group, (spans, enters, leaves) in _places(problem, t):
            for some in [degrees] if together else [(d,) for d in degrees]:
                yield Setting(
                    tensor_parallel=t,
                    data_degrees=some,
                    group=group,
                    spans_nodes=spans,
                    enters_node=enters,
                    leaves_node=leaves,
                )


def refuse_what_options_couple(problem: PlanningProblem) -> None:
    """An `InputError` where the options of a stage's layers cannot be compared one by one."""
    for layer in problem.graph.layers:
        for t in problem.tensor_degrees:
            options = problem.options(layer, t)
            traffic = {_traffic(option) for option in options}
            at = f"the options of layer {layer.label} at tensor-parallel degree {t}"
            if problem.pipelining.flushes and len({o.parameter_bytes for o in options}) > 1:
                raise InputError(
                    f"{at} differ in the parameters that they reduce",
                    "with a flush the exact planner needs options that reduce alike",
                    "plan without a flush (2bw), or state equal parameter bytes",
                )
            costs = problem.costs
            if (costs.shared_tensors_once or costs.counts_buffers) and len(traffic) > 1:
                raise InputError(
                    f"{at} differ in the bytes that they synchronise",
                    "where tensors are shared or buffers count, the exact planner needs options "
                    "that synchronise alike",
                    "use Piper's cost model, or state equal bytes",
                )


def _traffic(option: Option) -> tuple[tuple[tuple[int, float], ...], ...]:
    sides = (option.input_sync_bytes, option.output_sync_bytes)
    return tuple(tuple(sorted(side.items())) for side in sides)


def _reduce_alike(problem: PlanningProblem, tensor_parallel: int) -> bool:
    """Whether the options of every layer reduce as many bytes."""
    return all(
        len({o.parameter_bytes for o in problem.options(layer, tensor_parallel)}) <= 1
        for layer in problem.graph.layers
    )


def _places(
    problem: PlanningProblem, tensor_parallel: int
) -> Iterator[tuple[int, tuple[bool, bool, bool]]]:
    """Device groups, and ways in which a stage there can lie to the borders of nodes."""
    if problem.cluster.is_flat:
        yield 0, (False, False, False)
        return
    inside = [(False, enters, leaves) for enters in (False, True) for leaves in (False, True)]
    for index, group in enumerate(problem.cluster.groups):
        if tensor_parallel <= group.devices_per_node:
            yield from ((index, place) for place in inside)
            yield index, (True, True, True)


def time_units(problem: PlanningProblem) -> FixedPoint:
    """A unit so fine that the sum of all that a problem can add up just fits into 64 bits."""
    links = [problem.cluster.link, *(group.link for group in problem.cluster.groups)]
    slowest = min(link.bandwidth_bytes_per_second for link in links)
    latency = max(link.latency_seconds for link in links)
    speed = min(group.speed for group in problem.cluster.groups)
    most = problem.data_degrees[-1]
    seconds = 0.0
    for layer in problem.graph.layers:
        options = [o for t in problem.tensor_degrees for o in problem.options(layer, t)]
        if not options:
            continue
        parameters = max(option.parameter_bytes for option in options)
        sync = max(
            sum(o.input_sync_bytes.values()) + sum(o.output_sync_bytes.values()) for o in options
        )
        seconds += max(option.seconds for option in options) / speed
        seconds += (4 * most * parameters / problem.microbatches + 2 * sync) / slowest
    seconds += sum(4 * edge.bytes / slowest + 4 * latency for edge in problem.graph.edges)
    return fixed_point_below(seconds + 2 * most * most * latency)


def layer_costs(problem: PlanningProblem, setting: Setting, unit: FixedPoint) -> LayerCosts:
    """The costs of all layers and edges in a setting."""
    graph, t = problem.graph, setting.tensor_parallel
    group = problem.cluster.groups[setting.group]
    options = tuple(problem.options(graph.layer(i), t) for i in graph.topological_order)
    width = max(1, *map(len, options))
    filled = [_filled(layer_options, width) for layer_options in options]
    link = _link(problem, group, between_nodes=setting.spans_nodes)
    parameters = _per_option(filled, "parameter_bytes")
    reduction = link.direction_factor * 2 * parameters / link.bandwidth_bytes_per_second
    reduction /= problem.microbatches
    factors, constants = _reduction(problem, setting, link)
    seconds = _per_option(filled, "seconds") / group.speed
    alike = _reduce_alike(problem, t)
    if not alike:
        seconds = seconds + factors[0] * reduction
    fixed, temporary = _fixed_bytes(problem, setting, filled)
    bytes_in, bytes_out = (_edge_bytes(problem, filled, side) for side in ("input", "output"))
    edge_in = unit.units(
        _edge_seconds(problem, bytes_in, _link(problem, group, between_nodes=setting.enters_node))
    )
    edge_out = unit.units(
        _edge_seconds(problem, bytes_out, _link(problem, group, between_nodes=setting.leaves_node))
    )
    return LayerCosts(
        setting=setting,
        options=options,
        missing=np.array([not layer_options for layer_options in options]),
        times=unit.units(seconds),
        activation_bytes=_per_option(filled, "activation_bytes"),
        fixed_bytes=fixed,
        temporary_bytes=temporary,
        reduction=unit.units(reduction[:, 0] if alike else 0.0 * reduction[:, 0]),
        edge_in=edge_in,
        edge_out=edge_out,
        edge_in_bytes=bytes_in.max(axis=1, initial=0.0),
        edge_out_bytes=bytes_out.max(axis=1, initial=0.0),
        options_synchronise_alike=bool(
            (edge_in == edge_in[:, :1]).all() and (edge_out == edge_out[:, :1]).all()
        ),
        memory_limit_bytes=group.memory_bytes - problem.costs.reserve_bytes,
        reduction_factors=factors,
        reduction_constants=unit.units(constants),
    )


_FREE = Option(name="none", seconds=0.0, parameter_bytes=0.0, activation_bytes=0.0)


def _filled(options: tuple[Option, ...], width: int) -> list[Option]:
    filler = options[0] if options else _FREE
    return [*options, *[filler] * (width - len(options))]


def _per_option(options: list[list[Option]], name: str) -> NDArray[np.float64]:
    return np.array([[getattr(option, name) for option in row] for row in options], np.float64)


def _fixed_bytes(
    problem: PlanningProblem, setting: Setting, options: list[list[Option]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes of each option held once, and those of which a stage holds only the largest."""
    versions = problem.pipelining.weight_versions - 1
    shards = setting.data_degrees[0] if problem.shard_optimizer else 1
    fixed, temporary = [], []
    for row in options:
        kinds = [option.fixed_memory for option in row]
        apart = [k.temporary_bytes if problem.costs.temporary_once else 0.0 for k in kinds]
        temporary.append(apart)
        fixed.append(
            [
                math.fsum(
                    (
                        k.parameters_bytes,
                        k.gradients_bytes,
                        k.optimizer_bytes / shards,
                        k.versions_bytes * versions,
                        k.temporary_bytes - once,
                        k.unspecified_bytes,
                    )
                )
                for k, once in zip(kinds, apart, strict=True)
            ]
        )
    return np.array(fixed), np.array(temporary)


def _reduction(
    problem: PlanningProblem, setting: Setting, link: Link
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """By what the time of one ring step's bytes is multiplied, and what comes on top."""
    degrees = np.array(setting.data_degrees)
    latency = link.latency_seconds if problem.costs.counts_latency else 0.0
    if problem.costs.collective is Collective.RING:
        return degrees - 1, 2 * latency * degrees * (degrees - 1) / problem.microbatches
    rounds = np.ceil(np.log2(degrees))
    return (
        np.where(degrees > 1, degrees, 0),
        2 * latency * degrees * rounds / problem.microbatches,
    )


def _link(problem: PlanningProblem, group: DeviceGroup, *, between_nodes: bool) -> Link:
    return problem.cluster.link if between_nodes else group.link


def _edge_bytes(
    problem: PlanningProblem, options: list[list[Option]], side: str
) -> NDArray[np.float64]:
    """What a cut edge brings to the options of its target ("input") or source (edges, options)."""
    graph = problem.graph
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    amounts = np.zeros((len(graph.edges), len(options[0])))
    for row, edge in enumerate(graph.edges):
        near, far = (edge.target, edge.source) if side == "input" else (edge.source, edge.target)
        for column, option in enumerate(options[index[near]]):
            sync = option.input_sync_bytes if side == "input" else option.output_sync_bytes
            amounts[row, column] = edge.bytes + sync.get(far, 0.0)
    return amounts


def _edge_seconds(
    problem: PlanningProblem, amounts: NDArray[np.float64], link: Link
) -> NDArray[np.float64]:
    """What a cut edge costs, activation and gradient."""
    latency = 2 * link.latency_seconds if problem.costs.counts_latency else 0.0
    return link.direction_factor * amounts / link.bandwidth_bytes_per_second + latency
