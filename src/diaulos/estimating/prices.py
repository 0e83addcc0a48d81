"""What each stage takes and holds, from its layers, and what a step takes beside the pipeline."""

from dataclasses import dataclass

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.stages import StageLayers
from diaulos.models.operations import LayerOperations, Region
from diaulos.pricing.analytic.account import Sharding, StateBytes, state_bytes
from diaulos.pricing.analytic.groups import Groups, border_link
from diaulos.pricing.analytic.seconds import NO_SECONDS, LayerSeconds
from diaulos.pricing.analytic.sharded import ShardedLayer, sharded_stage_seconds
from diaulos.pricing.analytic.shares import activation_bytes, activation_share, temporary_bytes
from diaulos.pricing.analytic.times import layer_seconds
from diaulos.pricing.devices.collectives import all_gather_seconds
from diaulos.schedules.costs import Link, StageCosts


@dataclass(frozen=True, kw_only=True)
class StagePrice:
    """One stage on one rank."""

    layers: StageLayers
    seconds: LayerSeconds
    """Of one microbatch, all layers together."""
    gathering: LayerSeconds
    """What waiting for parameters that are spread over replicas adds."""
    state: StateBytes
    activation_bytes: float
    """Of one microbatch in flight."""
    temporary_bytes: float
    buffer_bytes: float
    output_bytes: float
    """Sent to the next stage for each microbatch, by one rank."""

    def costs(self) -> StageCosts:
        """As the simulator of schedules takes them."""
        both = self.seconds + self.gathering
        return StageCosts(
            forward_seconds=both.forward.total,
            backward_seconds=both.backward.total,
            weight_backward_seconds=both.weight_backward,
            output_bytes=self.output_bytes,
            activation_bytes=self.activation_bytes,
        )


class Pricer:
    """Prices the layers of one configuration; equal layers once."""

    def __init__(self, configuration: Configuration, groups: Groups) -> None:
        self._configuration = configuration
        self._groups = groups
        self._options = configuration.layer_options
        self._seconds: dict[int, LayerSeconds] = {}

    def stage(self, layers: StageLayers) -> StagePrice:
        """The price of a stage."""
        options = self._options
        operations = [layer.operations for layer in layers.layers]
        seconds = [self.seconds(some) for some in operations]
        whole = sum(seconds, NO_SECONDS)
        state = StateBytes()
        for some in operations:
            state += self._state(some, layers)
        return StagePrice(
            layers=layers,
            seconds=whole,
            gathering=self._gathering(operations, seconds),
            state=state,
            activation_bytes=sum(activation_bytes(some, options) for some in operations),
            temporary_bytes=max(temporary_bytes(some, options) for some in operations),
            buffer_bytes=self._buffer_bytes(operations),
            output_bytes=self._output_bytes(operations[-1]),
        )

    def seconds(self, operations: LayerOperations) -> LayerSeconds:
        """Of one microbatch through a layer."""
        key = id(operations)
        if key not in self._seconds:
            seconds = layer_seconds(operations, self._options, self._groups)
            apart = self._configuration.schedule == "zero-bubble"
            self._seconds[key] = seconds.with_halves_apart() if apart else seconds
        return self._seconds[key]

    def _state(self, operations: LayerOperations, layers: StageLayers) -> StateBytes:
        owners = {some.tied_to for some in operations.parameters if some.tied_to is not None}
        return state_bytes(
            operations,
            self._options,
            self._configuration.degrees,
            sharding=self._configuration.sharding,
            versions=self._configuration.weight_versions,
            holds_owner=owners <= layers.names,
        )

    def _gathering(
        self, operations: list[LayerOperations], seconds: list[LayerSeconds]
    ) -> LayerSeconds:
        if not self._configuration.gathers_each_microbatch:
            return NO_SECONDS
        precision = self._configuration.precision
        sharded = [
            ShardedLayer(
                seconds=some,
                parameter_bytes=self._parameter_count(layer) * precision.parameter_bytes,
                gradient_bytes=self._parameter_count(layer) * precision.gradient_bytes,
            )
            for layer, some in zip(operations, seconds, strict=True)
        ]
        return sharded_stage_seconds(sharded, self._groups.replicas)

    def _parameter_count(self, operations: LayerOperations) -> float:
        """Of one rank, whole for a moment."""
        return state_bytes(
            operations,
            self._options,
            self._configuration.degrees,
            sharding=Sharding.NOTHING,
        ).count

    def _buffer_bytes(self, operations: list[LayerOperations]) -> float:
        """What is being sent and received, and parameters that are gathered from their shares.

        Gathered for each microbatch, these are of two blocks, one computing and one coming, with
        the gradients of one on their way, and the ends of the model, which stay whole from forward
        to backward. Gathered for each step they are all, with their gradients.
        """
        size = 0.0
        if self._configuration.stages > 1:
            passing = {self._output_bytes(operations[-1]), self._input_bytes(operations[0])}
            size += 2 * sum(passing)
        precision = self._configuration.precision
        if self._configuration.gathers_each_step:
            count = sum(map(self._parameter_count, operations))
            size += count * (precision.parameter_bytes + precision.gradient_bytes)
        if self._configuration.gathers_each_microbatch:
            counts = [(some.recomputable, self._parameter_count(some)) for some in operations]
            block = max((count for inner, count in counts if inner), default=0.0)
            ends = sum(count for inner, count in counts if not inner)
            size += (3 * block + ends) * precision.parameter_bytes
            size += block * precision.gradient_bytes
        return size

    def _output_bytes(self, operations: LayerOperations) -> float:
        """Each rank of a tensor-parallel group sends its share, which is gathered there."""
        degrees = self._configuration.degrees
        return operations.output_bytes / (degrees.tensor * degrees.context)

    def _input_bytes(self, operations: LayerOperations) -> float:
        return operations.input_bytes * activation_share(Region.WHOLE, self._options)


def border_links(
    configuration: Configuration, cluster: Cluster, groups: Groups, output_bytes: float
) -> list[Link]:
    """The link of each border between two stages; a rank waits until its message has left.

    Where a tensor-parallel group does not share what is whole, each rank sends its share and the
    group gathers it on the other side (Narayanan et al., SC 2021, section 4.1).
    """
    degrees = configuration.degrees
    gather = 0.0
    if degrees.tensor > 1 and not configuration.sequence_parallel:
        gather = all_gather_seconds(groups.tensor, output_bytes * degrees.tensor)
    found = []
    for border in range(configuration.stages - 1):
        link = border_link(cluster, degrees, border % degrees.pipeline)
        found.append(
            Link(
                latency_seconds=link.latency_seconds + gather,
                bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
                overlaps=False,
            )
        )
    return found
