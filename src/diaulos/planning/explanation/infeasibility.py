"""What it would take where no plan fits: the least memory, the fewest devices, the best attempt.

Both are computed by asking whether any plan fits, halving the interval between what is too little
and what is enough. The best attempt is the plan for the least memory; it shows which stage cannot
be made smaller.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph, Option
from diaulos.planning.evaluation.evaluate import Evaluation, held_bytes
from diaulos.planning.exact import exact, feasible, is_searched_whole
from diaulos.planning.explanation.resizing import (
    device_unit,
    most_devices,
    with_devices,
    with_memory,
)
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem

MEMORY_PRECISION = 1e-9
"""The least memory is exact to this part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The fullest stage of the plan that exceeds the memory least."""

    plan: Plan
    stage: int
    layer: int
    """The id of the layer that holds most of it."""
    layer_bytes: float
    in_flight: int
    memory_by_kind: Mapping[str, float]
    memory_bytes: float
    missing_bytes: float
    """By how much it exceeds the memory of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasibility:
    """What would make a plan possible; each computed with the other given as it is."""

    least_memory_bytes: float | None
    """Of each device, with so many devices, to `MEMORY_PRECISION`; None if no memory would do."""
    fewest_devices: int | None
    """With so much memory, in whole nodes; None if no number would do."""
    shortage: Shortage | None
    """None where no memory would do."""
    proven: bool
    """Whether nothing less would do; else, on a graph of too many layers in parallel, it is what
    was found to do."""


def explain_infeasibility(problem: PlanningProblem) -> Infeasibility | None:
    """What a problem without a plan lacks; None on clusters of several groups of devices."""
    if len(problem.cluster.groups) > 1:
        return None
    least, attempt = _least_memory_bytes(problem), None
    if least is not None:
        attempt = _attempt(problem, with_memory(problem.cluster, least))
    return Infeasibility(
        least_memory_bytes=None if attempt is None else _fullest_bytes(attempt[1]),
        fewest_devices=_fewest_devices(problem),
        shortage=None if attempt is None else _shortage(problem, *attempt),
        proven=is_searched_whole(problem),
    )


def _attempt(problem: PlanningProblem, cluster: Cluster) -> tuple[Plan, Evaluation] | None:
    """Some plan on a cluster, with its price."""
    result = exact(replace(problem, cluster=cluster))
    if result.plan is None or result.evaluation is None:
        return None
    return result.plan, result.evaluation


def _least_memory_bytes(problem: PlanningProblem) -> float | None:
    """The least memory with which there is a plan, or a little more; None where none would do."""

    def is_enough(memory_bytes: float) -> bool:
        return feasible(replace(problem, cluster=with_memory(problem.cluster, memory_bytes)))

    too_little, enough = problem.cluster.largest_memory_bytes, _enough_bytes(problem)
    if not is_enough(enough):
        return None
    while too_little < enough * (1 - MEMORY_PRECISION):
        middle = _middle(too_little, enough)
        too_little, enough = (too_little, middle) if is_enough(middle) else (middle, enough)
    return enough


def _middle(low: float, high: float) -> float:
    """Between two amounts: geometrically where they are far apart."""
    return math.sqrt(low * high) if 0 < 2 * low < high else (low + high) / 2


def _fewest_devices(problem: PlanningProblem) -> int | None:
    """The fewest devices with which there is a plan, in whole nodes on clusters of several."""
    unit, most = device_unit(problem.cluster), most_devices(problem)

    def is_enough(devices: int) -> bool:
        return feasible(replace(problem, cluster=with_devices(problem.cluster, devices)))

    too_few = enough = problem.cluster.devices
    while True:
        enough = min(2 * enough, most)
        if enough <= too_few:
            return None
        if is_enough(enough):
            break
        too_few = enough
    while enough - too_few > unit:
        middle = (too_few + enough) // (2 * unit) * unit
        too_few, enough = (too_few, middle) if is_enough(middle) else (middle, enough)
    return enough


def _shortage(problem: PlanningProblem, plan: Plan, evaluation: Evaluation) -> Shortage:
    prices = evaluation.stages
    number = max(range(len(prices)), key=lambda i: prices[i].memory_bytes)
    price, stage = prices[number], plan.stages[number]
    held = {
        layer: _layer_bytes(problem, problem.graph, stage, layer, price.in_flight)
        for layer in stage.layers
    }
    layer = max(held, key=held.__getitem__)
    return Shortage(
        plan=plan,
        stage=number,
        layer=layer,
        layer_bytes=held[layer],
        in_flight=price.in_flight,
        memory_by_kind=price.memory_by_kind,
        memory_bytes=price.memory_bytes,
        missing_bytes=price.memory_bytes - problem.cluster.largest_memory_bytes,
    )


def _layer_bytes(
    problem: PlanningProblem, graph: LayerGraph, stage: Stage, layer: int, in_flight: int
) -> float:
    """What a device holds for a layer of a stage, without the reserve."""
    option = graph.layer(layer).option(stage.options[layer], stage.tensor_parallel)
    shards = stage.data_parallel if stage.sharded_optimizer else 1
    held = _held_bytes(problem, option, in_flight=in_flight, optimizer_shards=shards)
    return held - problem.costs.reserve_bytes


def _held_bytes(
    problem: PlanningProblem, option: Option, *, in_flight: int, optimizer_shards: int = 1
) -> float:
    kinds = held_bytes(
        [option],
        in_flight=in_flight,
        optimizer_shards=optimizer_shards,
        costs=problem.costs,
        pipelining=problem.pipelining,
    )
    return math.fsum(kinds.values())


def _fullest_bytes(evaluation: Evaluation) -> float:
    return max(price.memory_bytes for price in evaluation.stages)


def _enough_bytes(problem: PlanningProblem) -> float:
    """What no device can hold more than, whatever the plan."""
    layers = sum(
        max(_held_bytes(problem, o, in_flight=problem.microbatches) for o in layer.options)
        for layer in problem.graph.layers
    )
    sent = sum(edge.bytes for edge in problem.graph.edges) + sum(
        sum(option.input_sync_bytes.values()) + sum(option.output_sync_bytes.values())
        for layer in problem.graph.layers
        for option in layer.options
    )
    return 2 * (layers + 2 * sent + problem.cluster.largest_memory_bytes)
