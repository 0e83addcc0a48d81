"""The memory of a rank, by kind."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from diaulos.estimating.configuration import Configuration
from diaulos.estimating.prices import StagePrice
from diaulos.pricing.analytic.account import StateBytes

_RESERVE_SHARE = 0.1
"""What the allocator holds beyond what is asked for, of all that comes and goes: blocks cut too
large and gaps between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Bytes of one rank when it holds most."""

    parameters: float
    gradients: float
    """Summed over microbatches."""
    optimizer: float
    """Moments, and weights in fp32 where layers compute with others."""
    versions: float
    """Of all weight versions but one."""
    activations: float
    """Kept for backwards, of all microbatches in flight."""
    temporary: float
    """The most that lives for a moment of one layer's backward."""
    buffers: float
    """Messages on their way, and parameters gathered for a moment."""
    reserve: float
    """Of the allocator; the device's own part, of driver and libraries, is not counted."""

    @property
    def total(self) -> float:
        """All kinds together."""
        return sum(self.by_kind().values())

    def by_kind(self) -> dict[str, float]:
        """Bytes by the name of their kind."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def rank_memory(
    configuration: Configuration, stages: Sequence[StagePrice], peaks: Sequence[float]
) -> tuple[RankMemory, ...]:
    """The memory of the rank at each place of the pipeline; `peaks` are those of activations."""
    depth = configuration.degrees.pipeline
    return tuple(memory_of(stages[place::depth], peak) for place, peak in enumerate(peaks))


def memory_of(held: Sequence[StagePrice], activations: float) -> RankMemory:
    """Of a rank with these stages, when it holds so many bytes of activations."""
    state = sum((stage.state for stage in held), StateBytes())
    temporary = max(stage.temporary_bytes for stage in held)
    buffers = sum(stage.buffer_bytes for stage in held)
    return RankMemory(
        parameters=state.parameters,
        gradients=state.gradients,
        optimizer=state.optimizer,
        versions=state.versions,
        activations=activations,
        temporary=temporary,
        buffers=buffers,
        reserve=_RESERVE_SHARE * (activations + temporary + buffers),
    )
