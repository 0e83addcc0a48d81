"""What each stage takes and holds, from its layers, and what a step takes beside the pipeline."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.stages import StageLayers
from diaulos.models.operations import LayerOperations, Region
from diaulos.pricing.analytic.account import Sharding, StateBytes, state_bytes
from diaulos.pricing.analytic.groups import Groups, border_link
from diaulos.pricing.analytic.options import LayerOptions
from diaulos.pricing.analytic.seconds import NO_SECONDS, LayerSeconds
from diaulos.pricing.analytic.sharded import ShardedLayer, sharded_stage_seconds
from diaulos.pricing.analytic.shares import (
    activation_bytes,
    activation_share,
    parameter_share,
    temporary_bytes,
)
from diaulos.pricing.analytic.times import layer_seconds
from diaulos.pricing.devices.collectives import all_gather_seconds, reduce_scatter_seconds
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What layers hold on a device."""

    state: StateBytes
    activation_bytes: float
    temporary_bytes: float
    """Of the layer that needs most."""

    def __add__(self, other: "_Held") -> "_Held":
        return _Held(
            state=self.state + other.state,
            activation_bytes=self.activation_bytes + other.activation_bytes,
            temporary_bytes=max(self.temporary_bytes, other.temporary_bytes),
        )

    def __mul__(self, times: int) -> "_Held":
        return _Held(
            state=self.state * times,
            activation_bytes=self.activation_bytes * times,
            temporary_bytes=self.temporary_bytes,
        )


_NOTHING = _Held(state=StateBytes(), activation_bytes=0.0, temporary_bytes=0.0)


def _holds_owner(operations: LayerOperations, layers: StageLayers) -> bool:
    """Whether a stage holds all layers that a layer's parameters are tied to."""
    owners = {some.tied_to for some in operations.parameters if some.tied_to is not None}
    return not owners or owners <= layers.names


def _runs(operations: Sequence[LayerOperations]) -> Iterator[tuple[LayerOperations, int]]:
    """The layers, those that are equal and next to each other as one, with their number."""
    for _, equal in groupby(operations, key=id):
        some = list(equal)
        yield some[0], len(some)


class LayerTimes:
    """Seconds of layers on one cluster; equal layers that are run alike are priced once."""

    def __init__(self) -> None:
        self._known: dict[LayerOptions, dict[int, tuple[LayerOperations, LayerSeconds]]] = {}

    def run_as(
        self, options: LayerOptions, groups: Groups
    ) -> Callable[[LayerOperations], LayerSeconds]:
        """What gives the seconds of one microbatch through a layer that is run so."""
        known = self._known.setdefault(options, {})

        def seconds(operations: LayerOperations) -> LayerSeconds:
            key = id(operations)  # which stays theirs, since they are kept with their seconds
            if key not in known:
                known[key] = operations, layer_seconds(operations, options, groups)
            return known[key][1]

        return seconds


class Pricer:
    """Prices the layers of one configuration; equal layers once."""

    def __init__(
        self, configuration: Configuration, groups: Groups, times: LayerTimes | None = None
    ) -> None:
        self._configuration = configuration
        self._groups = groups
        self._options = configuration.layer_options
        self._seconds = (times or LayerTimes()).run_as(self._options, groups)
        self._held: dict[tuple[int, bool], _Held] = {}
        self._stages: dict[tuple[tuple[int, int, bool], ...], StagePrice] = {}

    def stage(self, layers: StageLayers) -> StagePrice:
        """The price of a stage."""
        operations = [layer.operations for layer in layers.layers]
        if not operations:
            return self._passing_on(layers)
        runs = list(_runs(operations))
        key = tuple((id(some), count, _holds_owner(some, layers)) for some, count in runs)
        if key in self._stages:
            return replace(self._stages[key], layers=layers)
        seconds, held = NO_SECONDS, _NOTHING
        for some, count in runs:
            seconds += self.seconds(some) * count
            held += self._holds(some, layers) * count
        price = StagePrice(
            layers=layers,
            seconds=seconds,
            gathering=self._gathering(operations),
            state=held.state,
            activation_bytes=held.activation_bytes,
            temporary_bytes=held.temporary_bytes,
            buffer_bytes=self._buffer_bytes(operations),
            output_bytes=self._output_bytes(operations[-1]),
        )
        self._stages[key] = price
        return price

    def _passing_on(self, layers: StageLayers) -> StagePrice:
        """Of a stage without layers."""
        assert layers.before is not None, "the first stage has layers"
        output_bytes = self._output_bytes(layers.before.operations)
        return StagePrice(
            layers=layers,
            seconds=NO_SECONDS,
            gathering=NO_SECONDS,
            state=StateBytes(),
            activation_bytes=0.0,
            temporary_bytes=0.0,
            buffer_bytes=2 * output_bytes,
            output_bytes=output_bytes,
        )

    def seconds(self, operations: LayerOperations) -> LayerSeconds:
        """Of one microbatch through a layer."""
        seconds = self._seconds(operations)
        apart = self._configuration.schedule == "zero-bubble"
        return seconds.with_halves_apart() if apart else seconds

    def _holds(self, operations: LayerOperations, layers: StageLayers) -> "_Held":
        holds_owner = _holds_owner(operations, layers)
        key = id(operations), holds_owner
        if key not in self._held:
            self._held[key] = _Held(
                state=state_bytes(
                    operations,
                    self._options,
                    self._configuration.degrees,
                    sharding=self._configuration.sharding,
                    versions=self._configuration.weight_versions,
                    holds_owner=holds_owner,
                ),
                activation_bytes=activation_bytes(operations, self._options),
                temporary_bytes=temporary_bytes(operations, self._options),
            )
        return self._held[key]

    def _gathering(self, operations: list[LayerOperations]) -> LayerSeconds:
        if not self._configuration.gathers_each_microbatch:
            return NO_SECONDS
        sharded = []
        for layer, count in _runs(operations):
            gather, back = self._spread_seconds(layer)
            one = ShardedLayer(seconds=self.seconds(layer), gather_seconds=gather, sum_seconds=back)
            sharded += [one] * count
        return sharded_stage_seconds(sharded)

    def _spread_seconds(self, operations: LayerOperations) -> tuple[float, float]:
        """Of gathering a layer's parameters from the replicas that have a share, and of the sum.

        Experts have replicas of their own: fewer, which lie further apart.
        """
        precision, groups = self._configuration.precision, self._groups
        gather, back = 0.0, 0.0
        for ranks, experts in ((groups.replicas, False), (groups.expert_replicas, True)):
            count = sum(
                some.count * parameter_share(some.region, self._options)
                for some in operations.parameters
                if (some.region is Region.EXPERTS) is experts
            )
            if count:
                gather += all_gather_seconds(ranks, count * precision.parameter_bytes)
                back += reduce_scatter_seconds(ranks, count * precision.gradient_bytes)
        return gather, back

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
