"""What would do instead, where a plan breaks a rule: the rest of a sentence about it."""

import math
from collections.abc import Iterable

from diaulos.models.graph import LayerGraph
from diaulos.planning.evaluation.costs import CostModel
from diaulos.planning.evaluation.evaluate import StagePrice, fits, held_bytes
from diaulos.planning.evaluation.pipelining import Pipelining
from diaulos.planning.plan import Plan, Stage
from diaulos.units import format_bytes


def stages_for_layer(graph: LayerGraph, plan: Plan, layer_id: int) -> str:
    """Where a layer that stands in no stage could stand, by the layers before and after it."""
    number_of = {layer: i for i, stage in enumerate(plan.stages) for layer in stage.layers}
    before = [number_of[layer] for layer in graph.predecessors[layer_id] if layer in number_of]
    after = [number_of[layer] for layer in graph.successors[layer_id] if layer in number_of]
    first = max(before, default=0)
    last = min(after, default=len(plan.stages) - 1)
    if first > last:
        return f"its neighbours in stages {first} and {last} stand in the wrong order"
    if first == last:
        return f"put it into stage {first}"
    return f"put it into one of the stages {first} to {last}"


def dividing_degrees(microbatches: int, degree: int) -> str:
    """The nearest degrees that divide the microbatches."""
    smaller = next(d for d in range(min(degree, microbatches), 0, -1) if microbatches % d == 0)
    larger = next((d for d in range(degree, microbatches + 1) if microbatches % d == 0), None)
    return f"{smaller} does" if larger is None else f"{smaller} and {larger} do"


def degrees_of_layers(graph: LayerGraph, layers: Iterable[int]) -> str:
    """The tensor-parallel degrees at which all of some layers have options."""
    common = set(graph.tensor_parallel_degrees)
    for layer in layers:
        common &= {option.tensor_parallel for option in graph.layer(layer).options}
    if not common:
        return "no degree is one of all its layers: cut the stage"
    return f"all of its layers have {_join(map(str, sorted(common)))}"


def leaner_options(
    graph: LayerGraph, stage: Stage, price: StagePrice, *, costs: CostModel, pipelining: Pipelining
) -> str:
    """Whether the options of least memory would bring a stage within the limit."""
    kinds = held_bytes(
        [
            min(
                graph.layer(layer).options_at(stage.tensor_parallel),
                key=lambda option: option.memory_bytes(price.in_flight),
            )
            for layer in stage.layers
        ],
        in_flight=price.in_flight,
        optimizer_shards=stage.data_parallel if stage.sharded_optimizer else 1,
        costs=costs,
        pipelining=pipelining,
    )
    least = math.fsum((*kinds.values(), price.memory_by_kind.get("buffers", 0.0)))
    if fits(least, price.memory_limit_bytes):
        return f"with the options of least memory it holds {format_bytes(least)}, which fits"
    if fits(price.memory_bytes, least):
        return "its options are those of least memory: move layers to other stages"
    return (
        f"even with the options of least memory it holds {format_bytes(least)}: move layers to "
        "other stages"
    )


def _join(texts: Iterable[str]) -> str:
    """`1`, `1 and 2`, `1, 2 and 4`."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
