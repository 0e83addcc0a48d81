"""What the actions of a schedule cost: seconds and bytes of each stage, and the link."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from diaulos.clusters.cluster import Link as ClusterLink
from diaulos.errors import InputError
from diaulos.schedules.shape import PipelineShape


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """What one replica of a stage takes and holds."""

    forward_seconds: float
    """Of one microbatch."""
    backward_seconds: float
    """Of one microbatch, both halves."""
    weight_backward_seconds: float | None = None
    """Of the half that gives the gradients of the weights; half of the backward if not known."""
    update_seconds: float = 0.0
    """Of the optimizer, once per batch."""
    reduce_seconds: float = 0.0
    """Of the sum of the gradients over replicas, once per batch, beside the computations.

    A rank's reductions run one after another.
    """
    output_bytes: float = 0.0
    """Sent to the next stage per microbatch; as much comes back as a gradient."""
    input_sync_bytes: float = 0.0
    """What each message from the stage before takes more, to share it among the own devices."""
    activation_bytes: float = 0.0
    """Held for each microbatch in flight."""
    fixed_bytes: float = 0.0
    """Held all the time, with one version of the weights."""
    version_bytes: float = 0.0
    """Held all the time for each further version of the weights."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InputError(f"{field.name} is {value!r}", "it must be finite and at least 0")
        if self.weight_seconds > self.backward_seconds:
            raise InputError(
                f"weight_backward_seconds is {self.weight_backward_seconds!r}",
                f"it is a part of backward_seconds, {self.backward_seconds!r}",
            )

    @property
    def weight_seconds(self) -> float:
        """Of the half of a backward that gives the gradients of the weights."""
        known = self.weight_backward_seconds
        return self.backward_seconds / 2 if known is None else known

    @property
    def input_seconds(self) -> float:
        """Of the half of a backward that gives the gradient of the input."""
        return self.backward_seconds - self.weight_seconds

    def divided(self, chunks: int) -> "StageCosts":
        """Of one of so many equal parts of the stage; each hands on as much as the whole."""
        parts = {
            field.name: getattr(self, field.name) / chunks
            for field in fields(self)
            if field.name not in ("output_bytes", "input_sync_bytes")
            and getattr(self, field.name) is not None
        }
        return replace(self, **parts)


def chunk_costs(shape: PipelineShape, costs: Sequence[StageCosts]) -> list[StageCosts]:
    """The costs of each stage where every position's costs are cut into its chunks evenly."""
    return [costs[position].divided(shape.chunks) for position in shape.homes]


def message_bytes(costs: Sequence[StageCosts], border: int) -> float:
    """Of a microbatch, from the stage before a border to the one behind it; as much comes back."""
    return costs[border].output_bytes + costs[border + 1].input_sync_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Between two ranks; it carries one message at a time, in each direction or in both."""

    latency_seconds: float = 0.0
    bandwidth_bytes_per_second: float = math.inf
    duplex: bool = True
    """Whether opposite messages do not wait for each other."""
    overlaps: bool = True
    """Whether the sender goes on while a message is under way; else it waits until it has left."""

    @staticmethod
    def of(link: ClusterLink) -> "Link":
        """The link between two devices of a cluster."""
        return Link(
            latency_seconds=link.latency_seconds,
            bandwidth_bytes_per_second=link.bandwidth_bytes_per_second,
            duplex=link.duplex,
        )

    def seconds(self, size_bytes: float) -> float:
        """How long the link is taken by a message, without its latency."""
        return size_bytes / self.bandwidth_bytes_per_second


Links = Link | Sequence[Link]
"""One for all borders between stages, or one for each."""


def border_links(links: Links, stages: int) -> Sequence[Link]:
    """The link of each border between two of so many stages."""
    if isinstance(links, Link):
        return [links] * (stages - 1)
    if len(links) != stages - 1:
        raise InputError(
            f"there are links of {len(links)} borders", f"{stages} stages have {stages - 1}"
        )
    return links
