"""The plan: which layers form which stage, and in how many copies and shards each runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

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
    sharded_optimizer: bool = False
    """Whether each replica keeps the optimizer's state of its share of the weights (ZeRO-1)."""
    first_device: int | None = None
    """Where on the cluster's line of devices the stage stands; replica r, shard k is r*t + k on."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError(
                "a stage has no layers",
                "every stage holds at least one layer",
                "give it layers, or remove the stage",
            )
        if len(set(self.layers)) < len(self.layers):
            raise InputError(f"a stage names a layer twice: {list(self.layers)}")
        for name in ("data_parallel", "tensor_parallel"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        if self.first_device is not None and self.first_device < 0:
            problem = f"first_device is {self.first_device}"
            raise InputError(problem, "devices are numbered from 0")
        if self.options.keys() != set(self.layers):
            without = sorted(set(self.layers) - self.options.keys())
            beyond = sorted(self.options.keys() - set(self.layers))
            remedies = [f"give {without} an option"] if without else []
            remedies += [f"remove the option of {beyond}"] if beyond else []
            raise InputError(
                f"layers and options of a stage differ in {sorted(without + beyond)}",
                "each layer of the stage needs one option",
                " and ".join(remedies),
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
        stated = [stage.first_device is not None for stage in self.stages]
        if any(stated) and not all(stated):
            raise InputError(
                f"stage {stated.index(False)} does not state its first_device, "
                f"stage {stated.index(True)} does",
                "either all stages state where they stand, or none",
            )

    @property
    def devices_used(self) -> int:
        """Devices of all stages."""
        return sum(stage.devices for stage in self.stages)

    @property
    def is_placed(self) -> bool:
        """Whether the stages state on which devices they stand."""
        return self.stages[0].first_device is not None

    @property
    def totals(self) -> tuple[int, ...]:
        """For each stage the sum of the data-parallel degrees of it and all later ones: s."""
        degrees = [stage.data_parallel for stage in reversed(self.stages)]
        return tuple(reversed(list(accumulate(degrees))))

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Microbatches in flight on a replica of each stage: y = ceil(s / d).

        In steady state, s being the sum of the data-parallel degrees of the stage and all later
        ones (Piper, section 3).
        """
        return tuple(
            -(-total // stage.data_parallel)
            for total, stage in zip(self.totals, self.stages, strict=True)
        )

    def devices_of(self, number: int) -> range:
        """The devices of a stage, replica by replica; an `InputError` if the plan is not placed."""
        stage = self.stages[number]
        if stage.first_device is None:
            raise InputError(
                f"stage {number} does not state its first_device",
                "only a placed plan knows its devices",
                "place it on a cluster with `on_devices`",
            )
        return range(stage.first_device, stage.first_device + stage.devices)
