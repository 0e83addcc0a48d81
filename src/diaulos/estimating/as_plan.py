"""A configuration as a plan of a layer graph: what is simulated, explained, edited and trained."""

from collections.abc import Mapping
from types import MappingProxyType

from diaulos.errors import InputError
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import Estimate
from diaulos.models.graph import LayerGraph
from diaulos.planning.evaluation.pipelining import (
    GPIPE,
    ONE_F_ONE_B,
    STEADY,
    ZERO_BUBBLE,
    Pipelining,
)
from diaulos.planning.plan import Plan, Stage
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.graph import Ways, priced_graph
from diaulos.pricing.analytic.options import Recompute

PIPELININGS: Mapping[str, Pipelining] = MappingProxyType(
    {"1f1b": ONE_F_ONE_B, "gpipe": GPIPE, "2bw": STEADY, "zero-bubble": ZERO_BUBBLE}
)
"""Schedules of configurations that plans have, too."""


def as_plan(found: Estimate) -> tuple[LayerGraph, Plan]:
    """The priced layers of a model, and the stages of a configuration of it.

    An `InputError` where a plan cannot say it.
    """
    chosen = found.configuration
    _refuse_what_plans_lack(chosen)
    ways = Ways(
        tensor_parallel=(chosen.degrees.tensor,),
        recompute=tuple(dict.fromkeys((Recompute.NONE, chosen.recompute))),
        base=chosen.layer_options,
    )
    graph = priced_graph(lambda _: found.operations, found.cluster, chosen.workload, ways)
    ids = {layer.name: layer.id for layer in graph.layers}
    stages = tuple(
        _stage(chosen, graph, [ids[layer.name] for layer in stage.layers.layers])
        for stage in found.stages
    )
    return graph, Plan(stages=stages, microbatches=chosen.microbatches * chosen.degrees.data)


def _stage(chosen: Configuration, graph: LayerGraph, layers: list[int]) -> Stage:
    wanted = chosen.recompute.value
    return Stage(
        layers=tuple(layers),
        data_parallel=chosen.degrees.data,
        tensor_parallel=chosen.degrees.tensor,
        options={
            layer: next(
                (option.name for option in graph.layer(layer).options if option.name == wanted),
                Recompute.NONE.value,
            )
            for layer in layers
        },
        sharded_optimizer=chosen.sharding is Sharding.OPTIMIZER and chosen.degrees.data > 1,
    )


def _refuse_what_plans_lack(chosen: Configuration) -> None:
    lacking = {
        "several stages of a rank": chosen.virtual_stages > 1,
        "context parallelism": chosen.degrees.context > 1,
        "expert parallelism": chosen.degrees.expert > 1,
        "gradients or parameters spread over replicas": chosen.sharding > Sharding.OPTIMIZER,
    }
    found = [name for name, is_so in lacking.items() if is_so]
    if found:
        raise InputError(
            f"the configuration has {', '.join(found)}",
            "the stages of a plan have devices of their own, replicas and shards",
            "plan with --trainer diaulos",
        )
