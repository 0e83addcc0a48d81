"""The rules of a plan: every one that it breaks is a sentence."""

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.planning.evaluation.costs import PIPER, CostModel
from diaulos.planning.evaluation.evaluate import fits, price_stage
from diaulos.planning.evaluation.pipelining import STEADY, Pipelining
from diaulos.planning.evaluation.places import place_violations, stage_places
from diaulos.planning.evaluation.remedies import (
    degrees_of_layers,
    dividing_degrees,
    leaner_options,
    stages_for_layer,
)
from diaulos.planning.plan import Plan
from diaulos.units import format_bytes


def violations(
    graph: LayerGraph,
    plan: Plan,
    cluster: Cluster,
    costs: CostModel = PIPER,
    pipelining: Pipelining = STEADY,
) -> tuple[str, ...]:
    """Every rule that a plan breaks on a cluster, one sentence each; empty if it is valid."""
    misplaced = place_violations(plan, cluster)
    overfull = [] if misplaced else _memory_violations(graph, plan, cluster, costs, pipelining)
    return (
        *_layer_violations(graph, plan),
        *_order_violations(graph, plan),
        *_degree_violations(plan, cluster),
        *misplaced,
        *_option_violations(graph, plan),
        *overfull,
    )


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
        f"layer {layer.label} stands in no stage; {stages_for_layer(graph, plan, layer.id)}"
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
        f"the {plan.microbatches} microbatches; "
        f"{dividing_degrees(plan.microbatches, stage.data_parallel)}"
        for number, stage in enumerate(plan.stages)
        if plan.microbatches % stage.data_parallel
    ]
    if plan.devices_used > cluster.devices:
        found.append(
            f"the stages take {plan.devices_used} devices, the cluster has {cluster.devices}; "
            "use smaller degrees or fewer stages"
        )
    replicas = sum(stage.data_parallel for stage in plan.stages)
    if replicas > min(plan.microbatches, cluster.devices):
        found.append(
            f"the data-parallel degrees sum up to {replicas}, more than the "
            f"{plan.microbatches} microbatches or the {cluster.devices} devices; "
            "use smaller ones"
        )
    return found


def _option_violations(graph: LayerGraph, plan: Plan) -> list[str]:
    found = []
    for number, stage in enumerate(plan.stages):
        layers = [layer for layer in stage.layers if layer in graph.positions]
        degree = stage.tensor_parallel
        without = [layer for layer in layers if not graph.layer(layer).options_at(degree)]
        if without:
            more = f" and {len(without) - 1} more" if len(without) > 1 else ""
            found.append(
                f"stage {number} has tensor-parallel degree {degree}, at which layer "
                f"{graph.layer(without[0]).label}{more} has no option; "
                f"{degrees_of_layers(graph, layers)}"
            )
        for layer in layers:
            if layer not in without:
                try:
                    graph.layer(layer).option(stage.options[layer], degree)
                except InputError as error:
                    found.append(f"stage {number}: {error}")
    return found


def _memory_violations(
    graph: LayerGraph, plan: Plan, cluster: Cluster, costs: CostModel, pipelining: Pipelining
) -> list[str]:
    """The stages that do not fit, as far as they can be priced at all."""
    found = []
    places = stage_places(plan, cluster)
    totals = pipelining.totals([stage.data_parallel for stage in plan.stages])
    for number, (stage, place, total) in enumerate(zip(plan.stages, places, totals, strict=True)):
        try:
            price = price_stage(
                graph,
                stage,
                place,
                total=total,
                microbatches=plan.microbatches,
                costs=costs,
                pipelining=pipelining,
            )
        except InputError:  # a layer or option that does not exist, which is told already
            continue
        held, limit = price.memory_bytes, price.memory_limit_bytes
        if not fits(held, limit):
            found.append(
                f"stage {number} holds {held:.0f} bytes on each device, {held - limit:.0f} bytes "
                f"({format_bytes(held - limit)}) more than the limit of {limit:.0f}; "
                f"{leaner_options(graph, stage, price, costs=costs, pipelining=pipelining)}"
            )
    return found
