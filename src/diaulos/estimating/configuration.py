"""A configuration: how a model is to be trained, checked against the model and the cluster."""

from dataclasses import dataclass, field

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.models.operations import ModelOperations, Workload
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.groups import Degrees
from diaulos.pricing.analytic.options import PRECISIONS, LayerOptions, Precision, Recompute, Runtime
from diaulos.pricing.devices.attention import AttentionKind

SCHEDULES = ("1f1b", "interleaved", "gpipe", "2bw", "zero-bubble")
"""By the names that flags use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Degrees, sizes and ways; everything that an estimate follows from beside model and cluster.

    Numbers are checked here; `check_fits` checks them against a model and a cluster.
    """

    degrees: Degrees
    microbatch_size: int
    """Samples of one microbatch on one replica."""
    batch_size: int
    """Samples of one step over all replicas."""
    sequence_length: int
    virtual_stages: int = 1
    """Stages of a rank, which the schedule interleaves."""
    schedule: str = "1f1b"
    recompute: Recompute = Recompute.NONE
    sequence_parallel: bool = False
    sharding: Sharding = Sharding.NOTHING
    attention: AttentionKind = AttentionKind.FLASH
    precision: Precision = PRECISIONS["bf16"]
    runtime: Runtime = field(default_factory=Runtime)
    blocks_per_stage: tuple[int, ...] | None = None
    """Blocks of each stage, input end first; None for the most even split."""

    def __post_init__(self) -> None:
        for name in ("microbatch_size", "batch_size", "sequence_length", "virtual_stages"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        self._check_schedule()
        share = self.degrees.data * self.microbatch_size
        if self.batch_size % share:
            more = -(-self.batch_size // share) * share
            raise InputError(
                f"a batch of {self.batch_size} does not split into microbatches of "
                f"{self.microbatch_size} on {self.degrees.data} replicas",
                "it must be a multiple of both together",
                f"{more} would do",
            )
        if self.sequence_length % self.degrees.context:
            raise InputError(
                f"sequence_length is {self.sequence_length}",
                f"the context-parallel degree {self.degrees.context} must divide it",
            )

    @property
    def microbatches(self) -> int:
        """Of one replica and step."""
        return self.batch_size // (self.degrees.data * self.microbatch_size)

    @property
    def stages(self) -> int:
        """All of them; a rank holds `virtual_stages`."""
        return self.degrees.pipeline * self.virtual_stages

    @property
    def workload(self) -> Workload:
        """One microbatch."""
        return Workload(
            microbatch_size=self.microbatch_size,
            sequence_length=self.sequence_length,
            element_bytes=self.precision.element_bytes,
        )

    @property
    def weight_versions(self) -> int:
        """That are held at a time."""
        return 2 if self.schedule == "2bw" else 1

    @property
    def gathers_each_microbatch(self) -> bool:
        """Whether parameters that are spread over replicas are gathered for each microbatch.

        In a pipeline they are once for each step, and stay whole with their gradients until its
        end, as torchtitan does it: gathering them again and again would take longer than it saves.
        """
        return self.sharding is Sharding.PARAMETERS and self.degrees.pipeline == 1

    @property
    def gathers_each_step(self) -> bool:
        """Whether they are gathered once for each step."""
        return self.sharding is Sharding.PARAMETERS and self.degrees.pipeline > 1

    @property
    def layer_options(self) -> LayerOptions:
        """How each layer is run."""
        return LayerOptions(
            tensor_parallel=self.degrees.tensor,
            sequence_parallel=self.sequence_parallel,
            context_parallel=self.degrees.context,
            expert_parallel=self.degrees.expert,
            recompute=self.recompute,
            attention=self.attention,
            precision=self.precision,
            runtime=self.runtime,
        )

    def _check_schedule(self) -> None:
        if self.schedule not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise InputError(f"there is no schedule {self.schedule!r}", f"there are {known}")
        if self.virtual_stages > 1 and self.schedule != "interleaved":
            raise InputError(
                f"{self.virtual_stages} virtual stages are given for the schedule {self.schedule}",
                "only interleaved runs several stages on a rank",
                "take the schedule interleaved",
            )
        if self.sharding is Sharding.PARAMETERS and self.schedule == "2bw":
            raise InputError(
                "2bw is given with parameters spread over replicas",
                "its weight versions are whole",
                "take a ZeRO level below 3",
            )


def check_fits(configuration: Configuration, operations: ModelOperations, cluster: Cluster) -> None:
    """An `InputError` where the degrees do not fit the model or the devices of the cluster."""
    degrees = configuration.degrees
    if degrees.devices > cluster.devices:
        raise InputError(
            f"tensor {degrees.tensor} x context {degrees.context} x data {degrees.data} x "
            f"pipeline {degrees.pipeline} are {degrees.devices} devices",
            f"the cluster {cluster.name!r} has {cluster.devices}",
            "smaller degrees would do",
        )
    if operations.heads % degrees.tensor:
        raise InputError(
            f"the tensor-parallel degree is {degrees.tensor}",
            f"it must divide the {operations.heads} heads of {operations.name}",
        )
    if operations.experts % degrees.expert:
        known = operations.experts
        raise InputError(
            f"the expert-parallel degree is {degrees.expert}",
            f"it must divide the {known} experts of {operations.name}"
            if known > 1
            else f"{operations.name} has no experts",
        )
