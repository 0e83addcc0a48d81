"""What parameters take on a device: themselves, their gradients, their optimizer."""

from dataclasses import dataclass
from enum import IntEnum

from diaulos.models.operations import LayerOperations, Parameters, Region
from diaulos.pricing.analytic.groups import Degrees
from diaulos.pricing.analytic.options import LayerOptions
from diaulos.pricing.analytic.shares import parameter_share


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """What is held all the time for the parameters of some layers."""

    count: float = 0.0
    """Parameters that a device holds or has a share of, before any are spread over replicas."""
    updated: float = 0.0
    """Of these, those whose optimizer a device has."""
    parameters: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    versions: float = 0.0

    def __add__(self, other: "StateBytes") -> "StateBytes":
        return StateBytes(
            count=self.count + other.count,
            updated=self.updated + other.updated,
            parameters=self.parameters + other.parameters,
            gradients=self.gradients + other.gradients,
            optimizer=self.optimizer + other.optimizer,
            versions=self.versions + other.versions,
        )

    def __mul__(self, times: float) -> "StateBytes":
        return StateBytes(
            count=self.count * times,
            updated=self.updated * times,
            parameters=self.parameters * times,
            gradients=self.gradients * times,
            optimizer=self.optimizer * times,
            versions=self.versions * times,
        )

    @property
    def total(self) -> float:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer + self.versions


class Sharding(IntEnum):
    """What is spread over the replicas (ZeRO; Rajbhandari et al., 2020)."""

    NOTHING = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    """And the optimizer."""
    PARAMETERS = 3
    """And the others, as FSDP does it."""


def state_bytes(
    layer: LayerOperations,
    options: LayerOptions,
    degrees: Degrees,
    *,
    sharding: Sharding,
    versions: int = 1,
    holds_owner: bool = False,
) -> StateBytes:
    """What the parameters of a layer take on a device.

    `holds_owner` says whether the layer that owns its tied parameters is on the same stage.
    """
    total = StateBytes()
    for some in layer.parameters:
        if some.tied_to is None or not holds_owner:
            total += _state_of(some, options, degrees, sharding=sharding, versions=versions)
    return total


def _state_of(
    some: Parameters,
    options: LayerOptions,
    degrees: Degrees,
    *,
    sharding: Sharding,
    versions: int,
) -> StateBytes:
    precision = options.precision
    count = some.count * parameter_share(some.region, options)
    replicas = degrees.replicas
    if some.region is Region.EXPERTS:
        replicas //= degrees.expert
    kept, trained = precision.parameter_bytes, precision.optimizer_bytes
    if sharding is Sharding.PARAMETERS:
        kept, trained = precision.sharded_bytes
    updated = count / (replicas if sharding >= Sharding.OPTIMIZER else 1)
    further = (kept + precision.gradient_bytes) * (versions - 1)
    return StateBytes(
        count=count,
        updated=updated,
        parameters=count * kept / (replicas if sharding >= Sharding.PARAMETERS else 1),
        gradients=count
        * precision.gradient_bytes
        / (replicas if sharding >= Sharding.GRADIENTS else 1),
        optimizer=updated * trained,
        versions=count * further / (replicas if sharding >= Sharding.PARAMETERS else 1),
    )
