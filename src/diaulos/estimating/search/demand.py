"""What is asked of a configuration: the batch, the sequences, and what the search may choose."""

from dataclasses import dataclass, field

from diaulos.errors import InputError
from diaulos.estimating.configuration import SCHEDULES
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.options import PRECISIONS, Precision, Recompute, Runtime
from diaulos.pricing.devices.attention import AttentionKind

SYNCHRONOUS = ("1f1b", "interleaved", "zero-bubble")
"""Schedules under which training is what one device would do; GPipe is 1F1B with more memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a configuration must do, and which ways are open to it."""

    batch_size: int
    """Samples of one step over all replicas."""
    sequence_length: int
    """Tokens of a sample."""
    schedules: tuple[str, ...] = SYNCHRONOUS
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    sharding: tuple[Sharding, ...] = tuple(Sharding)
    precision: Precision = PRECISIONS["bf16"]
    attention: AttentionKind = AttentionKind.FLASH
    runtime: Runtime = field(default_factory=Runtime)
    splits_sequences: bool = True
    """Whether long sequences may be split over devices (context parallelism)."""
    spreads_experts: bool = True
    """Whether experts may be spread over devices (expert parallelism)."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "sequence_length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        for name in ("schedules", "recompute", "sharding"):
            if not getattr(self, name):
                raise InputError(f"{name} offers nothing", "the search needs at least one")
        unknown = [name for name in self.schedules if name not in SCHEDULES]
        if unknown:
            known = ", ".join(SCHEDULES)
            raise InputError(f"there is no schedule {unknown[0]!r}", f"there are {known}")
