"""Where the time of a plan goes beyond perfect balance, in seconds that add up.

With perfect balance every device computes all the time and does the least work: a microbatch takes
W/C seconds, W being the least work of all layers (tensor-parallel degree times seconds of the
option for which that is least) and C the devices of the cluster, each counted by its speed. No plan
is faster. Each second of a plan beyond that is spent by devices on something else. With the time
per sample T of the plan, and for its stages the devices D, their speed v and the time T_i,

    C T = sum of D v T_i  +  sum of D v (T - T_i)  +  (C - sum of D v) T
          what stages do     waiting for the slowest   devices without a stage

and what stages do is computation, communication and reduction; D v times the computation of a
stage is t times the seconds of its options, which is the least work and what recomputation, other
slower options and tensor parallelism add to it. Divided by C these are the parts, none of them
below 0; with a flush, the fill and drain of a batch is one more, spread over its microbatches.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import Layer, LayerGraph
from diaulos.planning.evaluation.evaluate import Evaluation, chosen_options
from diaulos.planning.evaluation.places import placed
from diaulos.planning.plan import Plan, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Seconds of a microbatch, averaged over all devices; they add up to the plan's."""

    bound_seconds: float
    """Perfect balance: the least work, on all devices at once."""
    recomputation_seconds: float
    slower_options_seconds: float
    """Of options without recomputation that are not the fastest at their degree."""
    tensor_parallel_seconds: float
    """What splitting layers over devices adds to their work."""
    communication_seconds: float
    reduction_seconds: float
    imbalance_seconds: float
    """Stages wait for the slowest, since layers are whole and degrees divide the microbatches."""
    idle_devices_seconds: float
    """Devices without a stage."""
    fill_and_drain_seconds: float
    """Of the flush, a batch's divided by its microbatches."""

    @property
    def parts_seconds(self) -> Mapping[str, float]:
        """All that comes on top of the bound, by what it goes to."""
        return {
            "recomputation": self.recomputation_seconds,
            "slower options": self.slower_options_seconds,
            "tensor parallelism": self.tensor_parallel_seconds,
            "communication": self.communication_seconds,
            "reduction": self.reduction_seconds,
            "imbalance": self.imbalance_seconds,
            "idle devices": self.idle_devices_seconds,
            "fill and drain": self.fill_and_drain_seconds,
        }

    @property
    def total_seconds(self) -> float:
        """Of a microbatch: a batch's divided by its microbatches."""
        return math.fsum((self.bound_seconds, *self.parts_seconds.values()))


def gap_to_balance(graph: LayerGraph, plan: Plan, cluster: Cluster, evaluation: Evaluation) -> Gap:
    """What a plan's time is made of; `evaluation` is its price on the cluster."""
    capacity = _capacity(cluster)
    time = evaluation.time_per_sample_seconds
    firsts = placed(plan, cluster)
    weights = [
        stage.devices * cluster.group_of(first).speed
        for stage, first in zip(plan.stages, firsts, strict=True)
    ]
    extra = [work for stage in plan.stages for work in _extra_work(graph, stage)]
    priced = list(zip(weights, evaluation.stages, strict=True))
    return Gap(
        bound_seconds=math.fsum(map(least_work_seconds, graph.layers)) / capacity,
        recomputation_seconds=math.fsum(e.recomputation for e in extra) / capacity,
        slower_options_seconds=math.fsum(e.slower_option for e in extra) / capacity,
        tensor_parallel_seconds=math.fsum(e.tensor_parallel for e in extra) / capacity,
        communication_seconds=math.fsum(w * p.communication_seconds for w, p in priced) / capacity,
        reduction_seconds=math.fsum(w * p.reduction_seconds for w, p in priced) / capacity,
        imbalance_seconds=(
            math.fsum(w * (time - p.time_per_sample_seconds) for w, p in priced) / capacity
        ),
        idle_devices_seconds=(capacity - math.fsum(weights)) * time / capacity,
        fill_and_drain_seconds=evaluation.batch_seconds / plan.microbatches - time,
    )


def least_work_seconds(layer: Layer) -> float:
    """Device seconds that a layer takes at least: degree times seconds of its leanest option."""
    return min(option.tensor_parallel * option.seconds for option in layer.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExtraWork:
    """What a layer takes beyond its least work, in device seconds."""

    recomputation: float
    slower_option: float
    tensor_parallel: float


def _extra_work(graph: LayerGraph, stage: Stage) -> Iterator[_ExtraWork]:
    degree = stage.tensor_parallel
    for layer_id, chosen in chosen_options(graph, stage).items():
        layer = graph.layer(layer_id)
        fastest = min(option.seconds for option in layer.options_at(degree))
        slower = degree * (chosen.seconds - fastest)
        yield _ExtraWork(
            recomputation=slower if chosen.recompute else 0.0,
            slower_option=0.0 if chosen.recompute else slower,
            tensor_parallel=degree * fastest - least_work_seconds(layer),
        )


def _capacity(cluster: Cluster) -> float:
    """Devices, each counted by its speed."""
    return math.fsum(group.devices * group.speed for group in cluster.groups)
