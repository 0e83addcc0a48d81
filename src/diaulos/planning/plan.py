"""The plan: which layers form which stage, and in how many copies and shards each runs."""

from collections.abc import Mapping
from dataclasses import dataclass

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Contiguous layers with one data-parallel and one tensor-parallel degree."""

    layers: tuple[int, ...]
    """Layer ids, in topological order."""
    data_parallel: int
    tensor_parallel: int
    options: Mapping[int, str]
    """The name of the chosen option, by layer id."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("a stage has no layers", "every stage holds at least one layer")
        if len(set(self.layers)) < len(self.layers):
            raise InputError(f"a stage names a layer twice: {list(self.layers)}")
        for name in ("data_parallel", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        if self.options.keys() != set(self.layers):
            differing = sorted(self.options.keys() ^ set(self.layers))
            raise InputError(
                f"layers and options of a stage differ in {differing}",
                "each layer of the stage needs one option",
            )

    @property
    def devices(self) -> int:
        """Devices that the stage takes: replicas times shards."""
        return self.data_parallel * self.tensor_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Stages from the input end to the output end, for batches of `microbatches`."""

    stages: tuple[Stage, ...]
    microbatches: int
    """Of one batch, over all replicas; microbatch j runs on replica j mod d of each stage."""

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("a plan has no stages", "it needs at least one")
        if self.microbatches < 1:
            raise InputError(f"microbatches is {self.microbatches}", "it must be at least 1")

    @property
    def devices_used(self) -> int:
        """Devices of all stages."""
        return sum(stage.devices for stage in self.stages)

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Microbatches in flight on a replica of each stage: y = ceil(s / d).

        s is the sum of the data-parallel degrees of the stage and all later ones (Piper,
        section 3).
        """
        counts = []
        remaining = 0
        for stage in reversed(self.stages):
            remaining += stage.data_parallel
            counts.append(-(-remaining // stage.data_parallel))
        return tuple(reversed(counts))
