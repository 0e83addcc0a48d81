"""Price and memory of any plan, from the definition and apart from every search.

Each stage pays for its computation, for the tensors on the edges that enter or leave it, and for
reducing gradients over its replicas, one after the other; the slowest stage is the time per sample
of the whole plan (Piper, NeurIPS 2021, section 4). What a batch takes is a closed form over the
stages, see `pipelining`. Sums are correctly rounded (`math.fsum`), so that they do not depend on
the order of the layers.

A stage with replicas d, N microbatches in a batch, on devices of speed v:

* computation: the seconds of its options / (v*d);
* communication: each tensor that crosses a border goes one way and its gradient the other, in
  f*bytes/bandwidth + 2*latency, f being 1 for a duplex link and 2 else; all of them / d;
* reduction of P bytes of parameters, by a ring in f*2*(d-1)/d*P/bandwidth + 2*(d-1)*latency, by
  a tree in f*2*P/bandwidth + 2*ceil(log2 d)*latency; both / N.

With `PIPER` latencies do not count; on half-duplex links that leaves 2*bytes/(d*bandwidth) for
communication and 4*(d-1)*P/(d*N*bandwidth) for a ring, as published.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diaulos.clusters.cluster import Cluster, Link
from diaulos.models.graph import LayerGraph, Option
from diaulos.planning.evaluation.costs import PIPER, Collective, CostModel
from diaulos.planning.evaluation.pipelining import (
    STEADY,
    Pipelining,
    StageLoad,
    batch_seconds,
    least_weight_backward_seconds,
)
from diaulos.planning.evaluation.places import StagePlace, stage_places
from diaulos.planning.plan import Plan, Stage

RELATIVE_ROUNDING = 1e-12
"""Amounts that agree to this part are equal: decimal figures are rounded when they are summed."""


def fits(memory_bytes: float, limit_bytes: float) -> bool:
    """Whether memory is within a limit; the one rule that every planner and check uses."""
    return memory_bytes <= limit_bytes * (1 + RELATIVE_ROUNDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrice:
    """What one stage costs each of its devices."""

    data_parallel: int
    in_flight: int
    """Microbatches whose activations a replica holds at once: Piper's y."""
    compute_seconds: float
    """Of a microbatch, spread over the replicas; as all seconds where nothing else is said."""
    communication_seconds: float
    """Tensors on cut edges, forward and backward."""
    reduction_seconds: float
    """Gradients over the replicas, spread over the microbatches of a batch."""
    weight_backward_seconds: float
    """The part of a microbatch on one replica that a zero-bubble schedule can defer, at least."""
    memory_by_kind: Mapping[str, float]
    """Bytes: the kinds of `FixedMemory`, `activations` in flight, `buffers` and `reserve`."""
    memory_bytes: float
    memory_limit_bytes: float
    """Of the devices that the stage stands on."""

    @property
    def time_per_sample_seconds(self) -> float:
        """Seconds per microbatch in steady state; nothing overlaps."""
        return math.fsum((self.compute_seconds, self.communication_seconds, self.reduction_seconds))

    @property
    def microbatch_seconds(self) -> float:
        """Of one microbatch on one replica, forward and backward, with its communication."""
        return self.data_parallel * (self.compute_seconds + self.communication_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The price of a plan, stage by stage from the input end."""

    stages: tuple[StagePrice, ...]
    devices_used: int
    microbatches: int
    pipelining: Pipelining

    @property
    def time_per_sample_seconds(self) -> float:
        """Seconds per microbatch in steady state: those of the slowest stage."""
        return max(stage.time_per_sample_seconds for stage in self.stages)

    @property
    def batch_seconds(self) -> float:
        """Seconds of one batch under the schedule, fill and drain included."""
        loads = [
            StageLoad(
                microbatches=self.microbatches / stage.data_parallel,
                microbatch_seconds=stage.microbatch_seconds,
                reduction_seconds=self.microbatches * stage.reduction_seconds,
                weight_backward_seconds=stage.weight_backward_seconds,
            )
            for stage in self.stages
        ]
        return batch_seconds(self.pipelining, loads)

    @property
    def shares_of_bottleneck(self) -> tuple[float, ...]:
        """Time of each stage as a part of the slowest stage's."""
        bottleneck = self.time_per_sample_seconds
        return tuple(
            stage.time_per_sample_seconds / bottleneck if bottleneck > 0 else 1.0
            for stage in self.stages
        )


def evaluate(
    graph: LayerGraph,
    plan: Plan,
    cluster: Cluster,
    costs: CostModel = PIPER,
    pipelining: Pipelining = STEADY,
) -> Evaluation:
    """The price of a plan on a cluster, whether it fits there or not.

    A layer or option that the graph does not have is an `InputError`; so is a stage that finds no
    place on a cluster of several nodes.
    """
    totals = pipelining.totals([stage.data_parallel for stage in plan.stages])
    prices = (
        price_stage(
            graph,
            stage,
            place,
            total=total,
            microbatches=plan.microbatches,
            costs=costs,
            pipelining=pipelining,
        )
        for stage, place, total in zip(
            plan.stages, stage_places(plan, cluster), totals, strict=True
        )
    )
    return Evaluation(
        stages=tuple(prices),
        devices_used=plan.devices_used,
        microbatches=plan.microbatches,
        pipelining=pipelining,
    )


def price_stage(
    graph: LayerGraph,
    stage: Stage,
    place: StagePlace,
    *,
    total: int,
    microbatches: int,
    costs: CostModel,
    pipelining: Pipelining,
) -> StagePrice:
    """The price of one stage; `total` is what `Pipelining.totals` says of it."""
    replicas, speed = stage.data_parallel, place.group.speed
    options = chosen_options(graph, stage)
    entering, leaving = _crossing_bytes(graph, options, costs)
    in_flight = pipelining.in_flight(total, replicas, microbatches)
    kinds = held_bytes(
        list(options.values()),
        in_flight=in_flight,
        optimizer_shards=replicas if stage.sharded_optimizer else 1,
        costs=costs,
        pipelining=pipelining,
    )
    if costs.counts_buffers:
        kinds["buffers"] = 2 * math.fsum((*entering, *leaving))
    exchange = _exchange_seconds(entering, place.link_before, costs)
    exchange += _exchange_seconds(leaving, place.link_behind, costs)
    deferred = math.fsum(
        least_weight_backward_seconds(graph.layer(layer), stage.tensor_parallel)
        for layer in stage.layers
    )
    seconds = math.fsum(option.seconds for option in options.values())
    return StagePrice(
        data_parallel=replicas,
        in_flight=in_flight,
        compute_seconds=seconds / speed / replicas,
        communication_seconds=exchange / replicas,
        reduction_seconds=_reduction_seconds(
            [option.parameter_bytes for option in options.values()],
            place.link_inside,
            replicas=replicas,
            microbatches=microbatches,
            costs=costs,
        ),
        weight_backward_seconds=deferred / speed,
        memory_by_kind=kinds,
        memory_bytes=math.fsum(kinds.values()),
        memory_limit_bytes=place.group.memory_bytes,
    )


def chosen_options(graph: LayerGraph, stage: Stage) -> dict[int, Option]:
    """The option of each layer of a stage, by its id."""
    return {
        layer_id: graph.layer(layer_id).option(stage.options[layer_id], stage.tensor_parallel)
        for layer_id in stage.layers
    }


def held_bytes(
    options: Sequence[Option],
    *,
    in_flight: int,
    optimizer_shards: int,
    costs: CostModel,
    pipelining: Pipelining,
) -> dict[str, float]:
    """Bytes by kind that a device holds for layers with these options, without buffers."""
    held = [option.fixed_memory.by_kind() for option in options]
    kinds = {kind: math.fsum(amounts[kind] for amounts in held) for kind in held[0]}
    kinds["optimizer"] /= optimizer_shards
    kinds["versions"] *= pipelining.weight_versions - 1
    if costs.temporary_once:
        kinds["temporary"] = max(amounts["temporary"] for amounts in held)
    activations = math.fsum(option.activation_bytes for option in options)
    return {**kinds, "activations": activations * in_flight, "reserve": costs.reserve_bytes}


def _crossing_bytes(
    graph: LayerGraph, options: Mapping[int, Option], costs: CostModel
) -> tuple[list[float], list[float]]:
    """The messages of a microbatch that enter a stage and those that leave it, one way."""
    entering, leaving = [], []
    for edge in graph.edges:
        if edge.target in options and edge.source not in options:
            sync = options[edge.target].input_sync_bytes.get(edge.source, 0.0)
            entering.append((edge.source, edge.bytes + sync))
        elif edge.source in options and edge.target not in options:
            sync = options[edge.source].output_sync_bytes.get(edge.target, 0.0)
            leaving.append((edge.source, edge.bytes + sync))
    return _messages(entering, costs), _messages(leaving, costs)


def _messages(tensors: Sequence[tuple[int, float]], costs: CostModel) -> list[float]:
    """One message for each consumer, or for each source that of its largest consumer."""
    if not costs.shared_tensors_once:
        return [size_bytes for _, size_bytes in tensors]
    largest: dict[int, float] = {}
    for source, size_bytes in tensors:
        largest[source] = max(size_bytes, largest.get(source, 0.0))
    return list(largest.values())


def _exchange_seconds(messages: Sequence[float], link: Link, costs: CostModel) -> float:
    """All messages over a border and as many back, one after another."""
    transfer = link.direction_factor * math.fsum(messages) / link.bandwidth_bytes_per_second
    return transfer + (2 * link.latency_seconds * len(messages) if costs.counts_latency else 0.0)


def _reduction_seconds(
    parameters: Sequence[float], link: Link, *, replicas: int, microbatches: int, costs: CostModel
) -> float:
    """The sum of gradients over replicas, spread over the microbatches of a batch."""
    if replicas == 1:
        return 0.0
    factor = 2 * link.direction_factor
    if costs.collective is Collective.RING:
        steps = 2 * (replicas - 1)
        sent = [factor * (replicas - 1) * size / replicas / microbatches for size in parameters]
    else:
        steps = 2 * (replicas - 1).bit_length()
        sent = [factor * size / microbatches for size in parameters]
    latency = steps * link.latency_seconds / microbatches if costs.counts_latency else 0.0
    return math.fsum(sent) / link.bandwidth_bytes_per_second + latency
