"""Why a plan is as fast as it is: what binds each stage, and where its time goes."""

from dataclasses import dataclass, replace
from enum import Enum

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph
from diaulos.planning.evaluation.costs import PIPER, CostModel
from diaulos.planning.evaluation.evaluate import (
    Evaluation,
    StagePrice,
    chosen_options,
    evaluate,
    fits,
    held_bytes,
)
from diaulos.planning.evaluation.pipelining import STEADY, Pipelining
from diaulos.planning.explanation.gap import Gap, gap_to_balance
from diaulos.planning.plan import Plan, Stage


class Limit(Enum):
    """What a stage would need more of to be faster."""

    MEMORY = "memory"
    """Some layer has a faster option that does not fit."""
    LINK = "link"
    """Communication and reduction take more than half of its time."""
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageExplanation:
    """What binds a stage of a plan."""

    price: StagePrice
    limit: Limit
    barred_layers: tuple[int, ...]
    """Ids of layers that a faster option exists for, at the stage's degree, that does not fit."""
    waits_seconds: float
    """For the slowest stage, each sample."""

    @property
    def link_share(self) -> float:
        """The part of its time that goes to communication and reduction."""
        time = self.price.time_per_sample_seconds
        sent = self.price.communication_seconds + self.price.reduction_seconds
        return sent / time if time > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A plan's price, its stages from the input end, and the gap to perfect balance."""

    evaluation: Evaluation
    stages: tuple[StageExplanation, ...]
    gap: Gap


def explain(
    graph: LayerGraph,
    plan: Plan,
    cluster: Cluster,
    costs: CostModel = PIPER,
    pipelining: Pipelining = STEADY,
) -> Explanation:
    """Why a valid plan takes the time that it takes on a cluster."""
    evaluation = evaluate(graph, plan, cluster, costs, pipelining)
    slowest = evaluation.time_per_sample_seconds
    stages = []
    for stage, price in zip(plan.stages, evaluation.stages, strict=True):
        barred = barred_layers(graph, stage, price, costs=costs, pipelining=pipelining)
        explained = StageExplanation(
            price=price,
            limit=Limit.COMPUTE,
            barred_layers=barred,
            waits_seconds=slowest - price.time_per_sample_seconds,
        )
        stages.append(replace(explained, limit=_limit(explained)))
    return Explanation(
        evaluation=evaluation,
        stages=tuple(stages),
        gap=gap_to_balance(graph, plan, cluster, evaluation),
    )


def barred_layers(
    graph: LayerGraph,
    stage: Stage,
    price: StagePrice,
    *,
    costs: CostModel,
    pipelining: Pipelining,
) -> tuple[int, ...]:
    """The layers of a stage that would run faster by another option, were there more memory."""
    chosen = chosen_options(graph, stage)
    buffers = price.memory_by_kind.get("buffers", 0.0)
    found = []
    for layer_id, option in chosen.items():
        for faster in graph.layer(layer_id).options_at(stage.tensor_parallel):
            if faster.seconds < option.seconds:
                kinds = held_bytes(
                    list({**chosen, layer_id: faster}.values()),
                    in_flight=price.in_flight,
                    optimizer_shards=stage.data_parallel if stage.sharded_optimizer else 1,
                    costs=costs,
                    pipelining=pipelining,
                )
                if not fits(sum(kinds.values()) + buffers, price.memory_limit_bytes):
                    found.append(layer_id)
                    break
    return tuple(found)


def _limit(stage: StageExplanation) -> Limit:
    if stage.barred_layers:
        return Limit.MEMORY
    return Limit.LINK if stage.link_share > 0.5 else Limit.COMPUTE
