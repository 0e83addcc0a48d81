"""The estimate: step time by what it is spent on, rates, and memory by kind of every stage."""

from dataclasses import dataclass
from functools import cached_property

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.configuration import Configuration, check_fits
from diaulos.estimating.memory import RankMemory, rank_memory
from diaulos.estimating.parts import StepParts, step_parts
from diaulos.estimating.pipeline import PipelineRun, Simulators, run_pipeline, steady_pipeline
from diaulos.estimating.prices import LayerTimes, Pricer, StagePrice, border_links
from diaulos.estimating.stages import StageLayers, split_layers
from diaulos.models.operations import Model, ModelOperations
from diaulos.pricing.analytic.groups import Groups, rank_groups

_DRIVER_BYTES = 2.0**30
"""Half a GiB of CUDA's context, and as much of NCCL's buffers."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a configuration comes to."""

    configuration: Configuration
    operations: ModelOperations
    cluster: Cluster
    parts: StepParts
    stages: tuple[StagePrice, ...]
    """Input end first; rank r of the pipeline holds stages r, r + p, and so on."""
    memory: tuple[RankMemory, ...]
    """Of each place of the pipeline, on its heaviest rank."""
    recomputed_flops: float
    """Of one microbatch through the whole model."""
    peak_flops_per_second: float
    """Of one device, from its data sheet."""

    @property
    def step_seconds(self) -> float:
        """From one update of the weights to the next."""
        return self.parts.total

    @property
    def devices(self) -> int:
        """All that take part."""
        return self.configuration.degrees.devices

    @property
    def tokens_per_second(self) -> float:
        """Of all devices together."""
        tokens = self.configuration.batch_size * self.configuration.sequence_length
        return tokens / self.step_seconds

    @property
    def tokens_per_second_per_device(self) -> float:
        """Of one device."""
        return self.tokens_per_second / self.devices

    @property
    def model_flops_per_second_per_device(self) -> float:
        """FLOPs of the model, whatever is computed again; masked attention counts as full."""
        return self._flops_per_second(self.operations.model_flops)

    @property
    def mfu(self) -> float:
        """The share of the peak rate that the model's FLOPs use."""
        return self.model_flops_per_second_per_device / self.peak_flops_per_second

    @property
    def hfu(self) -> float:
        """The same with what is computed again."""
        flops = self.operations.model_flops + self.recomputed_flops
        return self._flops_per_second(flops) / self.peak_flops_per_second

    @property
    def bubble_fraction(self) -> float:
        """The share of the step in which the busiest rank waits for others."""
        return self.parts.bubble / self.step_seconds

    @property
    def memory_bytes(self) -> float:
        """Of the device that holds most."""
        return max(memory.total for memory in self.memory)

    @property
    def driver_bytes(self) -> float:
        """What driver and libraries take of a device before anything is allocated."""
        return _DRIVER_BYTES

    @property
    def fits(self) -> bool:
        """Whether every device has the memory."""
        return self.memory_bytes + self.driver_bytes <= self.cluster.largest_memory_bytes

    def _flops_per_second(self, flops: float) -> float:
        """Of so many FLOPs a microbatch."""
        count = self.configuration.microbatches * self.configuration.degrees.data
        return flops * count / self.step_seconds / self.devices


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A configuration whose stages are known, and priced when asked for; nothing is simulated."""

    configuration: Configuration
    operations: ModelOperations
    cluster: Cluster
    groups: Groups
    pricer: Pricer
    layers: tuple[StageLayers, ...]
    """Of each stage, input end first."""

    @cached_property
    def stages(self) -> tuple[StagePrice, ...]:
        """The prices of all stages."""
        return tuple(map(self.pricer.stage, self.layers))

    def place(self, number: int) -> tuple[StagePrice, ...]:
        """The stages of a rank at a place of the pipeline."""
        return tuple(
            map(self.pricer.stage, self.layers[number :: self.configuration.degrees.pipeline])
        )

    @property
    def driver_bytes(self) -> float:
        """What driver and libraries take of a device before anything is allocated."""
        return _DRIVER_BYTES

    def finished(self, simulators: Simulators) -> Estimate:
        """The estimate, with the pipeline simulated."""
        return self.finished_with(self.run(simulators))

    def finished_with(self, run: PipelineRun) -> Estimate:
        """The estimate, where the pipeline runs so."""
        peak = self.groups.device.peak_flops_per_second(self.configuration.precision.products)
        return Estimate(
            configuration=self.configuration,
            operations=self.operations,
            cluster=self.cluster,
            parts=self.parts(run),
            stages=self.stages,
            memory=self.memory(run),
            recomputed_flops=sum(stage.seconds.recomputed_flops for stage in self.stages),
            peak_flops_per_second=peak,
        )

    def parts(self, run: PipelineRun) -> StepParts:
        """What a step comes to if its pipeline takes so long."""
        return step_parts(self.configuration, self.cluster, self.groups, self.stages, run)

    def memory(self, run: PipelineRun) -> tuple[RankMemory, ...]:
        """Of each place of the pipeline, on its heaviest rank."""
        return rank_memory(self.configuration, self.stages, run.peak_bytes)

    def run(self, simulators: Simulators) -> PipelineRun:
        """The pipeline, simulated."""
        chosen, costs = self.configuration, [stage.costs() for stage in self.stages]
        links = border_links(chosen, self.cluster, self.groups, self.stages[0].output_bytes)
        depth = chosen.degrees.pipeline
        if chosen.schedule == "2bw" and depth > 1:
            return steady_pipeline(
                "2bw",
                depth=depth,
                microbatches=chosen.microbatches,
                costs=costs,
                links=links,
                simulators=simulators,
            )
        return run_pipeline(
            chosen.schedule,
            depth=depth,
            chunks=chosen.virtual_stages,
            microbatches=chosen.microbatches,
            costs=costs,
            links=links,
            simulators=simulators,
        )


def draft(
    operations: ModelOperations,
    cluster: Cluster,
    configuration: Configuration,
    times: LayerTimes | None = None,
) -> Draft:
    """Lay out a configuration; an `InputError` where it does not fit the model or the cluster.

    Drafts on one cluster that share `times` price equal layers once.
    """
    check_fits(configuration, operations, cluster)
    groups = rank_groups(cluster, configuration.degrees)
    pricer = Pricer(configuration, groups, times)
    layers = split_layers(operations, configuration.stages, configuration.blocks_per_stage)
    return Draft(
        configuration=configuration,
        operations=operations,
        cluster=cluster,
        groups=groups,
        pricer=pricer,
        layers=layers,
    )


def estimate(
    model: Model,
    cluster: Cluster,
    configuration: Configuration,
    simulators: Simulators | None = None,
) -> Estimate:
    """Price one configuration; an `InputError` where it does not fit the model or the cluster.

    Estimates that share `simulators` make equal schedules once.
    """
    known = draft(model(configuration.workload), cluster, configuration)
    return known.finished(simulators or Simulators())
