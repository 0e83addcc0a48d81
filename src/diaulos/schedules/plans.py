"""The timeline of a plan: its stages' costs, and their schedule on its cluster."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph, Option
from diaulos.planning.evaluation.places import StagePlace, stage_places
from diaulos.planning.plan import Plan, Stage
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator
from diaulos.schedules.timeline import Timeline


def simulate_plan(
    graph: LayerGraph, plan: Plan, cluster: Cluster, *, schedule: str, batches: int
) -> Timeline:
    """The timeline of a plan under the schedule of this name, checked before it is simulated."""
    simulator = plan_simulator(schedule, PipelineShape.of(plan), batches)
    return simulator.timeline(plan_costs(graph, plan, cluster), plan_links(plan, cluster))


@lru_cache(maxsize=32)
def plan_simulator(schedule: str, shape: PipelineShape, batches: int) -> Simulator:
    """The checked schedule of this name, ready to be simulated.

    Many plans have one shape: the simulators of the last shapes are kept.
    """
    generated = generate(schedule, shape, batches)
    return Simulator(generated, check(generated))


def plan_links(plan: Plan, cluster: Cluster) -> tuple[Link, ...]:
    """The link of each border between two stages, where they stand on the cluster."""
    return links_between(stage_places(plan, cluster))


def links_between(places: Sequence[StagePlace]) -> tuple[Link, ...]:
    """The links of `plan_links` of stages that stand at some places."""
    slower = (
        min(place.link_behind, after.link_before, key=lambda link: link.bandwidth_bytes_per_second)
        for place, after in pairwise(places)
    )
    return tuple(map(Link.of, slower))


def plan_costs(graph: LayerGraph, plan: Plan, cluster: Cluster) -> tuple[StageCosts, ...]:
    """The costs of each stage of a plan, where it stands on the cluster.

    Where a layer's forward and backward were not measured apart, the backward counts as twice the
    forward, with one more forward where it is recomputed; where the halves of the backward were
    not, each is half of what recomputation leaves. Messages carry what both sides synchronise over
    the edges at the border. The reduction is that of a ring, 2 (d-1)/d of the parameters in 2 (d-1)
    messages.
    """
    places = stage_places(plan, cluster)
    later = [
        {layer for stage in plan.stages[number + 1 :] for layer in stage.layers}
        for number in range(len(plan.stages))
    ]
    return tuple(
        stage_costs(graph, stage, handed_on_bytes(graph, behind), place)
        for stage, behind, place in zip(plan.stages, later, places, strict=True)
    )


def handed_on_bytes(graph: LayerGraph, later: Collection[int]) -> float:
    """What a stage hands to the next, before these layers: its own tensors and those passed on."""
    return math.fsum(
        edge.bytes for edge in graph.edges if edge.source not in later and edge.target in later
    )


def stage_costs(
    graph: LayerGraph, stage: Stage, output_bytes: float, place: StagePlace
) -> StageCosts:
    """The costs of `plan_costs` of one stage, which hands so many bytes of tensors to the next."""
    options = [
        graph.layer(layer).option(stage.options[layer], stage.tensor_parallel)
        for layer in stage.layers
    ]
    replicas, speed = stage.data_parallel, place.group.speed
    seconds = math.fsum(option.seconds for option in options)
    forward = math.fsum(map(forward_seconds, options))
    backward = max(seconds - forward, 0.0)
    weights = min(math.fsum(map(weight_seconds, options)), backward)
    update = math.fsum(option.update_seconds for option in options)
    held = [option.fixed_memory for option in options]
    versions_bytes = math.fsum(memory.versions_bytes for memory in held)
    optimizer_bytes = math.fsum(memory.optimizer_bytes for memory in held)
    elsewhere = 1 - 1 / replicas if stage.sharded_optimizer else 0.0
    return StageCosts(
        forward_seconds=forward / speed,
        backward_seconds=backward / speed,
        weight_backward_seconds=weights / speed,
        update_seconds=update * (1 - elsewhere) / speed,
        reduce_seconds=_ring_seconds(options, replicas, place),
        output_bytes=output_bytes + math.fsum(map(output_sync_of(stage.layers), options)),
        input_sync_bytes=math.fsum(map(input_sync_of(stage.layers), options)),
        activation_bytes=math.fsum(option.activation_bytes for option in options),
        fixed_bytes=math.fsum(option.fixed_bytes for option in options)
        - versions_bytes
        - elsewhere * optimizer_bytes,
        version_bytes=versions_bytes,
    )


def _ring_seconds(options: Sequence[Option], replicas: int, place: StagePlace) -> float:
    """Of the sum of the gradients over replicas."""
    link = place.link_inside
    share = 2 * (replicas - 1)
    parameter_bytes = math.fsum(option.parameter_bytes for option in options)
    seconds = parameter_bytes / replicas / link.bandwidth_bytes_per_second
    return share * (seconds + link.latency_seconds)


def input_sync_of(layers: Collection[int]) -> Callable[[Option], float]:
    """What an option of one of these layers synchronises over edges that come from others."""
    return lambda option: _outside(option.input_sync_bytes, layers)


def output_sync_of(layers: Collection[int]) -> Callable[[Option], float]:
    """What an option of one of these layers synchronises over edges that go to others."""
    return lambda option: _outside(option.output_sync_bytes, layers)


def _outside(sync_bytes: Mapping[int, float], layers: Collection[int]) -> float:
    return math.fsum(size for layer, size in sync_bytes.items() if layer not in layers)


def forward_seconds(option: Option) -> float:
    """Of a microbatch, as measured or as a part of all seconds."""
    known = option.forward_seconds
    return option.seconds / (4 if option.recompute else 3) if known is None else known


def weight_seconds(option: Option) -> float:
    """Of the half of the backward that gives the gradients of the weights."""
    if option.weight_backward_seconds is not None:
        return option.weight_backward_seconds
    forwards = 2 if option.recompute else 1
    return max(option.seconds - forwards * forward_seconds(option), 0.0) / 2
