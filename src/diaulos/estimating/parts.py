"""What the time of a step is spent on, as the busiest rank sees it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.pipeline import PipelineRun
from diaulos.estimating.prices import StagePrice
from diaulos.models.operations import Region
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.groups import Groups
from diaulos.pricing.analytic.seconds import NO_SECONDS, LayerSeconds
from diaulos.pricing.analytic.shares import parameter_share
from diaulos.pricing.devices.collectives import (
    RankGroup,
    all_gather_seconds,
    all_reduce_seconds,
    reduce_scatter_seconds,
)
from diaulos.pricing.devices.operations import optimizer_seconds

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Seconds of a step; they add up to it."""

    compute: float
    tensor_parallel: float
    context_parallel: float
    expert_parallel: float
    pipeline: float
    """Waiting for messages between stages."""
    data_parallel: float
    """Sums of gradients, and gathering of parameters, that nothing hides."""
    optimizer: float
    bubble: float
    """Waiting for other stages, with messages that take no time."""

    @property
    def total(self) -> float:
        """The step."""
        return math.fsum(getattr(self, field.name) for field in fields(self))


def step_parts(
    configuration: Configuration,
    cluster: Cluster,
    groups: Groups,
    stages: Sequence[StagePrice],
    run: PipelineRun,
) -> StepParts:
    """The parts of a step whose pipeline takes what `run` says."""
    depth, count = configuration.degrees.pipeline, configuration.microbatches
    places = [stages[place::depth] for place in range(depth)]
    busy = [sum((stage.seconds for stage in held), NO_SECONDS) for held in places]
    waits = [sum((stage.gathering for stage in held), NO_SECONDS) for held in places]
    totals = [some.total + wait.total for some, wait in zip(busy, waits, strict=True)]
    busiest = totals.index(max(totals))
    both = busy[busiest].forward + busy[busiest].backward
    gathering = count * waits[busiest].total
    return StepParts(
        compute=count * both.compute,
        tensor_parallel=count * both.tensor,
        context_parallel=count * both.context,
        expert_parallel=count * both.expert,
        pipeline=_difference(run.seconds, run.seconds_without_messages),
        data_parallel=gathering
        + _reduction_seconds(configuration, groups, places, busy)
        + _tied_seconds(configuration, cluster, stages),
        optimizer=max(_optimizer_seconds(configuration, groups, held) for held in places),
        bubble=_difference(run.seconds_without_messages, count * totals[busiest]),
    )


def _difference(longer: float, shorter: float) -> float:
    """What one time is longer than another, where that is more than rounding."""
    difference = longer - shorter
    return difference if difference > _ROUNDING * longer else 0.0


def _reduction_seconds(
    configuration: Configuration,
    groups: Groups,
    places: Sequence[Sequence[StagePrice]],
    busy: Sequence[LayerSeconds],
) -> float:
    """What the sums of gradients take after the last backward of the first place.

    Later places are done with their last backward before, and have so much more time.
    """
    if configuration.gathers_each_microbatch or configuration.degrees.replicas == 1:
        return 0.0
    late = 0.0
    drained = 0.0
    for held, seconds in zip(places, busy, strict=True):
        taken = sum(_place_reduction(configuration, groups, stage) for stage in held)
        hidden = drained
        if configuration.runtime.hides_data_parallel:
            hidden += seconds.backward.total
        late = max(late, taken - hidden)
        drained += seconds.backward.total / configuration.virtual_stages
    return late


def _place_reduction(configuration: Configuration, groups: Groups, stage: StagePrice) -> float:
    """Of all gradients of a stage; where the optimizer is spread, new parameters are gathered."""
    precision, options = configuration.precision, configuration.layer_options
    seconds = 0.0
    for ranks, wanted in ((groups.replicas, False), (groups.expert_replicas, True)):
        count = sum(
            some.count * parameter_share(some.region, options)
            for layer in stage.layers.layers
            for some in layer.operations.parameters
            if (some.region is Region.EXPERTS) is wanted
        )
        seconds += _sum_seconds(
            ranks, count, precision.gradient_bytes, precision.parameter_bytes,
            spread=configuration.sharding > Sharding.NOTHING,
        )  # fmt: skip
    return seconds


def _sum_seconds(
    ranks: RankGroup, count: float, gradient_bytes: int, parameter_bytes: int, *, spread: bool
) -> float:
    if ranks.members == 1 or not count:
        return 0.0
    if not spread:
        return all_reduce_seconds(ranks, count * gradient_bytes)
    gathered = all_gather_seconds(ranks, count * parameter_bytes)
    return reduce_scatter_seconds(ranks, count * gradient_bytes) + gathered


def _tied_seconds(
    configuration: Configuration, cluster: Cluster, stages: Sequence[StagePrice]
) -> float:
    """Of summing the gradients of parameters that the last stage has of the first one."""
    if len(stages) == 1:
        return 0.0
    precision, options = configuration.precision, configuration.layer_options
    count = sum(
        some.count * parameter_share(some.region, options)
        for layer in stages[-1].layers.layers
        for some in layer.operations.parameters
        if some.tied_to is not None and some.tied_to not in stages[-1].layers.names
    )
    pair = RankGroup(
        members=2,
        members_per_node=1,
        inside=cluster.groups[0].link,
        between=cluster.link,
    )
    return all_reduce_seconds(pair, count * precision.gradient_bytes) if count else 0.0


def _optimizer_seconds(
    configuration: Configuration, groups: Groups, held: Sequence[StagePrice]
) -> float:
    """Of the parameters that a rank updates."""
    size = sum(stage.state.updated for stage in held) * configuration.precision.update_bytes
    return optimizer_seconds(groups.device, size_bytes=size, launches=1)
