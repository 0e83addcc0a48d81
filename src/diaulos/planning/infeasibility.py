"""What it would take where no plan fits: the least memory, the fewest devices, the best attempt.

All of it is computed by planning: for larger memory and for more devices, halving the interval
between what is too little and what is enough. The best attempt is the plan of the least memory; it
shows which stage cannot be made smaller.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph, Option
from diaulos.planning.evaluate import Evaluation, evaluate, held_bytes
from diaulos.planning.exact import exact
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.resizing import device_unit, most_devices, with_devices, with_memory

MEMORY_PRECISION = 1e-9
"""The least memory is exact to this part of it."""
_NEAR = 1.001
"""Within this ratio, halving gives way to asking for anything less than the best so far."""


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


def explain_infeasibility(problem: PlanningProblem) -> Infeasibility | None:
    """What a problem without a plan lacks; None on clusters of several groups of devices."""
    if len(problem.cluster.groups) > 1:
        return None
    attempt = _leanest(problem)
    return Infeasibility(
        least_memory_bytes=None if attempt is None else _fullest_bytes(attempt[1]),
        fewest_devices=_fewest_devices(problem),
        shortage=None if attempt is None else _shortage(problem, *attempt),
    )


_Attempt = tuple[Plan, Evaluation]


def _attempt(problem: PlanningProblem, cluster: Cluster) -> _Attempt | None:
    """Some plan on a cluster, with its price."""
    there = replace(problem, cluster=cluster)
    plan = exact(there).plan
    if plan is None:
        return None
    return plan, evaluate(problem.graph, plan, cluster, problem.costs, problem.pipelining)


def _leanest(problem: PlanningProblem) -> _Attempt | None:
    """The plan whose fullest device holds the least."""

    def within(memory_bytes: float) -> _Attempt | None:
        return _attempt(problem, with_memory(problem.cluster, memory_bytes))

    best = within(_enough_bytes(problem))
    if best is None:
        return None
    too_little = problem.cluster.largest_memory_bytes
    while True:
        fullest = _fullest_bytes(best[1])
        target = math.sqrt(too_little * fullest)
        if fullest <= too_little * _NEAR:
            target = fullest * (1 - MEMORY_PRECISION)
        if target <= too_little:
            return best
        found = within(target)
        if found is not None:
            best = found
        else:
            too_little = target


def _fewest_devices(problem: PlanningProblem) -> int | None:
    """The fewest devices with which there is a plan, in whole nodes on clusters of several."""
    unit, most = device_unit(problem.cluster), most_devices(problem)

    def needed(devices: int) -> int | None:
        """Devices that a plan needs where there are so many; None where there is no plan."""
        found = _attempt(problem, with_devices(problem.cluster, devices))
        return None if found is None else -(-found[0].devices_used // unit) * unit

    too_few, enough = problem.cluster.devices, None
    while enough is None and too_few < most:
        count = min(2 * too_few, most)
        enough = needed(count)
        if enough is None:
            too_few = count
    while enough is not None and enough - too_few > unit:
        count = (too_few + enough) // (2 * unit) * unit
        fewer = needed(count)
        too_few, enough = (count, enough) if fewer is None else (too_few, fewer)
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
