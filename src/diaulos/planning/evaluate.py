"""Price and memory of any plan, from the definition and apart from every search.

The cost model is Piper's (NeurIPS 2021, section 4): each stage pays for its computation, for the
tensors on the edges that leave or enter it, and for reducing gradients over its replicas, one
after the other; the slowest stage is the time per sample of the whole plan. Sums are correctly
rounded (`math.fsum`), so that they do not depend on the order of the layers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph, Option
from diaulos.planning.plan import Plan, Stage
from diaulos.units import format_bytes

RELATIVE_ROUNDING = 1e-12
"""Amounts that agree to this part are equal: decimal figures are rounded when they are summed."""


def fits(memory_bytes: float, limit_bytes: float) -> bool:
    """Whether memory is within a limit; the one rule that every planner and check uses."""
    return memory_bytes <= limit_bytes * (1 + RELATIVE_ROUNDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrice:
    """What one stage costs each of its devices."""

    in_flight: int
    """Microbatches whose activations a replica holds at once: Piper's y."""
    compute_seconds: float
    communication_seconds: float
    """Tensors on cut edges, forward and backward."""
    reduction_seconds: float
    """Gradients over the replicas, spread over the microbatches of a batch."""
    memory_by_kind: Mapping[str, float]
    """Bytes: the kinds of `FixedMemory`, and `activations` of the microbatches in flight."""
    memory_bytes: float

    @property
    def time_per_sample_seconds(self) -> float:
        """Seconds per microbatch in steady state; nothing overlaps."""
        return math.fsum((self.compute_seconds, self.communication_seconds, self.reduction_seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The price of a plan, stage by stage from the input end."""

    stages: tuple[StagePrice, ...]
    devices_used: int

    @property
    def time_per_sample_seconds(self) -> float:
        """Seconds per microbatch in steady state: those of the slowest stage."""
        return max(stage.time_per_sample_seconds for stage in self.stages)

    @property
    def shares_of_bottleneck(self) -> tuple[float, ...]:
        """Time of each stage as a part of the slowest stage's."""
        bottleneck = self.time_per_sample_seconds
        return tuple(
            stage.time_per_sample_seconds / bottleneck if bottleneck > 0 else 1.0
            for stage in self.stages
        )


def evaluate(graph: LayerGraph, plan: Plan, cluster: Cluster) -> Evaluation:
    """The price of a plan on a cluster, whether it fits there or not.

    A layer or option that the graph does not have is an `InputError`.
    """
    prices = (
        price_stage(
            graph,
            stage,
            in_flight=in_flight,
            microbatches=plan.microbatches,
            bandwidth_bytes_per_second=cluster.slowest_link.bandwidth_bytes_per_second,
        )
        for stage, in_flight in zip(plan.stages, plan.in_flight, strict=True)
    )
    return Evaluation(stages=tuple(prices), devices_used=plan.devices_used)


def price_stage(
    graph: LayerGraph,
    stage: Stage,
    *,
    in_flight: int,
    microbatches: int,
    bandwidth_bytes_per_second: float,
) -> StagePrice:
    """The price of one stage (Piper, section 4; the reduction is a parameter server's).

    With replicas d, microbatches N and bandwidth B: the computation takes time/d, the cut edges
    2*bytes/(d*B) for activation and gradient, the reduction 4*(d-1)*parameters/(d*N*B).
    """
    replicas = stage.data_parallel
    options = _chosen_options(graph, stage)
    reduced_bytes = (
        4 * (replicas - 1) * option.parameter_bytes / replicas / microbatches
        for option in options.values()
    )
    kinds = _memory_by_kind(options, in_flight)
    return StagePrice(
        in_flight=in_flight,
        compute_seconds=math.fsum(option.seconds for option in options.values()) / replicas,
        communication_seconds=2
        * _cut_bytes(graph, options)
        / replicas
        / bandwidth_bytes_per_second,
        reduction_seconds=math.fsum(reduced_bytes) / bandwidth_bytes_per_second,
        memory_by_kind=kinds,
        memory_bytes=math.fsum(kinds.values()),
    )


def violations(graph: LayerGraph, plan: Plan, cluster: Cluster) -> tuple[str, ...]:
    """Every rule that a plan breaks on a cluster, one sentence each; empty if it is valid."""
    return (
        *_layer_violations(graph, plan),
        *_order_violations(graph, plan),
        *_degree_violations(plan, cluster),
        *_option_violations(graph, plan, cluster),
    )


def _chosen_options(graph: LayerGraph, stage: Stage) -> dict[int, Option]:
    return {
        layer_id: graph.layer(layer_id).option(stage.options[layer_id], stage.tensor_parallel)
        for layer_id in stage.layers
    }


def _cut_bytes(graph: LayerGraph, options: Mapping[int, Option]) -> float:
    amounts = []
    for edge in graph.edges:
        if edge.target in options and edge.source not in options:
            sync = options[edge.target].input_sync_bytes
            amounts += [edge.bytes, sync.get(edge.source, 0.0)]
        elif edge.source in options and edge.target not in options:
            sync = options[edge.source].output_sync_bytes
            amounts += [edge.bytes, sync.get(edge.target, 0.0)]
    return math.fsum(amounts)


def _memory_by_kind(options: Mapping[int, Option], in_flight: int) -> dict[str, float]:
    held = [option.fixed_memory.by_kind() for option in options.values()]
    kinds = {kind: math.fsum(amounts[kind] for amounts in held) for kind in held[0]}
    activations = math.fsum(option.activation_bytes for option in options.values())
    return {**kinds, "activations": activations * in_flight}


def _layer_violations(graph: LayerGraph, plan: Plan) -> list[str]:
    placed = [layer_id for stage in plan.stages for layer_id in stage.layers]
    found = []
    for layer_id in dict.fromkeys(placed):
        if layer_id not in graph.positions:
            found.append(f"layer {layer_id} stands in the plan but not in the graph")
        elif placed.count(layer_id) > 1:
            stages = [i for i, stage in enumerate(plan.stages) if layer_id in stage.layers]
            label = graph.layer(layer_id).label
            found.append(f"layer {label} stands in {len(stages)} stages: {stages}")
    found += [
        f"layer {layer.label} stands in no stage"
        for layer in graph.layers
        if layer.id not in set(placed)
    ]
    return found


def _order_violations(graph: LayerGraph, plan: Plan) -> list[str]:
    place = {
        layer_id: (number, index)
        for number, stage in enumerate(plan.stages)
        for index, layer_id in enumerate(stage.layers)
    }
    found = []
    for edge in graph.edges:
        if edge.source not in place or edge.target not in place:
            continue
        source, target = place[edge.source], place[edge.target]
        if source[0] > target[0]:
            found.append(
                f"layer {graph.layer(edge.source).label} in stage {source[0]} feeds layer "
                f"{graph.layer(edge.target).label} in the earlier stage {target[0]}"
            )
        elif source[0] == target[0] and source[1] > target[1]:
            found.append(
                f"stage {source[0]} lists layer {graph.layer(edge.target).label} before layer "
                f"{graph.layer(edge.source).label}, which feeds it"
            )
    return found


def _degree_violations(plan: Plan, cluster: Cluster) -> list[str]:
    found = [
        f"stage {number} has data-parallel degree {stage.data_parallel}, which does not divide "
        f"the {plan.microbatches} microbatches"
        for number, stage in enumerate(plan.stages)
        if plan.microbatches % stage.data_parallel
    ]
    if plan.devices_used > cluster.devices:
        found.append(
            f"the stages take {plan.devices_used} devices, the cluster has {cluster.devices}"
        )
    replicas = sum(stage.data_parallel for stage in plan.stages)
    if replicas > min(plan.microbatches, cluster.devices):
        found.append(
            f"the data-parallel degrees sum up to {replicas}, more than the "
            f"{plan.microbatches} microbatches or the {cluster.devices} devices"
        )
    return found


def _option_violations(graph: LayerGraph, plan: Plan, cluster: Cluster) -> list[str]:
    found = []
    for number, (stage, in_flight) in enumerate(zip(plan.stages, plan.in_flight, strict=True)):
        known = [layer_id for layer_id in stage.layers if layer_id in graph.positions]
        options = {}
        for layer_id in known:
            try:
                name = stage.options[layer_id]
                options[layer_id] = graph.layer(layer_id).option(name, stage.tensor_parallel)
            except InputError as error:
                found.append(f"stage {number}: {error}")
        if options and len(options) == len(stage.layers):
            memory_bytes = math.fsum(_memory_by_kind(options, in_flight).values())
            found += _memory_violations(number, memory_bytes, cluster.largest_memory_bytes)
    return found


def _memory_violations(number: int, memory_bytes: float, limit_bytes: float) -> list[str]:
    if fits(memory_bytes, limit_bytes):
        return []
    excess = memory_bytes - limit_bytes
    return [
        (
            f"stage {number} holds {memory_bytes:.0f} bytes on each device, {excess:.6g} bytes "
            f"({format_bytes(excess)}) more than the limit of {limit_bytes:.0f}"
        )
    ]
