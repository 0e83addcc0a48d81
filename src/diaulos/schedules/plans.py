"""The timeline of a plan: its stages' costs, and their schedule on its cluster."""

import math
from functools import lru_cache

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph, Option
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
    return simulator.timeline(plan_costs(graph, plan, cluster), Link.of(cluster))


@lru_cache(maxsize=32)
def plan_simulator(schedule: str, shape: PipelineShape, batches: int) -> Simulator:
    """The checked schedule of this name, ready to be simulated.

    Many plans have one shape: the simulators of the last shapes are kept.
    """
    generated = generate(schedule, shape, batches)
    check(generated)
    return Simulator(generated)


def plan_costs(graph: LayerGraph, plan: Plan, cluster: Cluster) -> tuple[StageCosts, ...]:
    """The costs of each stage of a plan.

    Where a layer's forward and backward were not measured apart, the backward counts as twice the
    forward, with one more forward where it is recomputed; where the halves of the backward were
    not, each is half of what recomputation leaves. The reduction is that of a ring, 2 (d-1)/d of
    the parameters.
    """
    sent = _boundary_bytes(graph, plan)
    return tuple(
        _stage_costs(graph, stage, output, cluster)
        for stage, output in zip(plan.stages, sent, strict=True)
    )


def _stage_costs(
    graph: LayerGraph, stage: Stage, output_bytes: float, cluster: Cluster
) -> StageCosts:
    options = [
        graph.layer(layer).option(stage.options[layer], stage.tensor_parallel)
        for layer in stage.layers
    ]
    seconds = math.fsum(option.seconds for option in options)
    forward = math.fsum(map(_forward_seconds, options))
    backward = max(seconds - forward, 0.0)
    parameter_bytes = math.fsum(option.parameter_bytes for option in options)
    ring = 2 * (stage.data_parallel - 1) / stage.data_parallel
    versions_bytes = math.fsum(option.fixed_memory.versions_bytes for option in options)
    return StageCosts(
        forward_seconds=forward,
        backward_seconds=backward,
        weight_backward_seconds=min(math.fsum(map(_weight_seconds, options)), backward),
        update_seconds=math.fsum(option.update_seconds for option in options),
        reduce_seconds=ring * parameter_bytes / cluster.slowest_link.bandwidth_bytes_per_second,
        output_bytes=output_bytes,
        activation_bytes=math.fsum(option.activation_bytes for option in options),
        fixed_bytes=math.fsum(option.fixed_bytes for option in options) - versions_bytes,
        version_bytes=versions_bytes,
    )


def _forward_seconds(option: Option) -> float:
    known = option.forward_seconds
    return option.seconds / (4 if option.recompute else 3) if known is None else known


def _weight_seconds(option: Option) -> float:
    """Of the half of the backward that gives the gradients of the weights."""
    if option.weight_backward_seconds is not None:
        return option.weight_backward_seconds
    forwards = 2 if option.recompute else 1
    return max(option.seconds - forwards * _forward_seconds(option), 0.0) / 2


def _boundary_bytes(graph: LayerGraph, plan: Plan) -> tuple[float, ...]:
    """What each stage hands to the next: its own tensors and those that only pass through."""
    stage_of = {layer: index for index, stage in enumerate(plan.stages) for layer in stage.layers}
    return tuple(
        math.fsum(
            edge.bytes
            for edge in graph.edges
            if stage_of[edge.source] <= boundary < stage_of[edge.target]
        )
        for boundary in range(len(plan.stages))
    )
