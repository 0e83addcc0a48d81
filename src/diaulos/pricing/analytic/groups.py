"""The groups of ranks that exchange with each other, and where they stand.

Ranks of a tensor-parallel group stand next to each other, then come those of a context-parallel
group, then the replicas, and last the stages (the order of Megatron-LM and torchtitan).
"""

from dataclasses import dataclass

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.clusters.device import Device
from diaulos.errors import InputError
from diaulos.pricing.devices.collectives import RankGroup, rank_group


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Into how many each way of parallelism splits; their product is the devices, but for experts.

    Expert parallelism takes its ranks from those of context and data parallelism.
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in ("tensor", "context", "data", "pipeline", "expert"):
            if getattr(self, name) < 1:
                problem = f"{name}-parallel degree is {getattr(self, name)}"
                raise InputError(problem, "it must be at least 1")
        if self.replicas % self.expert:
            raise InputError(
                f"expert-parallel degree is {self.expert}",
                f"it must divide the context- and data-parallel degrees together, {self.replicas}",
            )

    @property
    def devices(self) -> int:
        """All of them."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters, those of experts aside."""
        return self.context * self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups that each rank is in, on one kind of device."""

    device: Device
    tensor: RankGroup
    context: RankGroup
    expert: RankGroup
    replicas: RankGroup
    """That sum the gradients of all parameters but those of experts."""
    expert_replicas: RankGroup
    """That sum the gradients of experts."""


def rank_groups(cluster: Cluster, degrees: Degrees) -> Groups:
    """The groups of these degrees on a cluster of one kind of device."""
    group, device = _only_device(cluster)

    def ranks(members: int, stride: int) -> RankGroup:
        return rank_group(cluster, group, members=members, stride=stride)

    return Groups(
        device=device,
        tensor=ranks(degrees.tensor, 1),
        context=ranks(degrees.context, degrees.tensor),
        expert=ranks(degrees.expert, degrees.tensor),
        replicas=ranks(degrees.replicas, degrees.tensor),
        expert_replicas=ranks(degrees.replicas // degrees.expert, degrees.tensor * degrees.expert),
    )


def border_link(cluster: Cluster, degrees: Degrees, position: int) -> Link:
    """Between a rank at this place of the pipeline and its partner at the next."""
    group, _ = _only_device(cluster)
    width = degrees.devices // degrees.pipeline
    last = (position + 1) * width - 1
    wraps = position + 1 == degrees.pipeline  # chunks go on at the first place again
    partner = width - 1 if wraps else last + width
    node = group.devices_per_node
    return group.link if last // node == partner // node else cluster.link


def _only_device(cluster: Cluster) -> tuple[DeviceGroup, Device]:
    group = cluster.groups[0]
    if len(cluster.groups) > 1:
        raise InputError(
            f"the cluster {cluster.name!r} has {len(cluster.groups)} groups of devices",
            "an estimate is for one kind of device",
            "take one group; layer graphs are planned on several",
        )
    if group.device is None:
        raise InputError(
            f"the cluster {cluster.name!r} does not say what its devices are",
            "prices follow from a device's peak rates and memory bandwidth",
            "name a known device (diaulos clusters lists them), or describe one in the file",
        )
    return group, group.device
