"""The cost model: what the planner charges a stage beside its computation."""

import math
from dataclasses import dataclass
from enum import Enum

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError


class Collective(Enum):
    """How gradients are summed over the replicas of a stage."""

    RING = "ring"
    """2 (d-1)/d of the bytes in 2 (d-1) messages, one after the other."""
    TREE = "tree"
    """Twice the bytes in 2 log2(d) messages, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What counts; the formulas stand in `evaluate`."""

    collective: Collective = Collective.RING
    shared_tensors_once: bool = True
    """A tensor with several consumers crosses a border once, not once for each consumer."""
    counts_latency: bool = True
    counts_buffers: bool = True
    """Memory of what is being sent and received, twice the bytes that cross the borders."""
    temporary_once: bool = True
    """The temporary memory of a stage is its layers' largest, not their sum."""
    reserve_bytes: float = 0.0
    """Kept free on every device, for the framework and for fragmentation."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.reserve_bytes) and self.reserve_bytes >= 0):
            problem = f"reserve_bytes is {self.reserve_bytes!r}"
            raise InputError(problem, "it must be finite and at least 0")


PIPER = CostModel(
    shared_tensors_once=False, counts_latency=False, counts_buffers=False, temporary_once=False
)
"""The model of Piper (NeurIPS 2021, section 4)."""

DETAILED = CostModel()
"""Everything that is known about tensors, links and buffers counts."""


def usual_costs(cluster: Cluster) -> CostModel:
    """Piper's on a flat cluster, which is what they are made for; the detailed ones on others."""
    return PIPER if cluster.is_flat else DETAILED
