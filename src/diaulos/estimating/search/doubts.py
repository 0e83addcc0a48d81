"""What it would cost to be wrong: the same configurations where a figure is not as assumed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from diaulos.clusters.cluster import Cluster
from diaulos.clusters.device import Device
from diaulos.estimating.estimate import Estimate, draft
from diaulos.estimating.pipeline import Simulators


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A figure that may be otherwise, and what the first of some configurations loses then."""

    assumption: str
    """What is otherwise, as a phrase."""
    step_seconds: float
    """Of the first configuration, where it is so."""
    best: int
    """Which of the configurations is fastest then."""
    best_seconds: float
    fits: bool
    """Whether the first configuration still fits; the best is one that does, where there is one."""

    @property
    def regret(self) -> float:
        """By which part the first takes longer than the best then."""
        return self.step_seconds / self.best_seconds - 1


def doubts(found: Sequence[Estimate]) -> list[Doubt]:
    """Of each figure that may be otherwise; `found` are the fastest configurations, in order."""
    simulators = Simulators()
    return [
        _doubt(assumption, changed, found, simulators) for assumption, changed in _WORLDS.items()
    ]


def _doubt(
    assumption: str,
    changed: Callable[[Cluster], Cluster],
    found: Sequence[Estimate],
    simulators: Simulators,
) -> Doubt:
    cluster = changed(found[0].cluster)
    again = [
        draft(one.operations, cluster, one.configuration).finished(simulators) for one in found
    ]
    usable = [index for index, one in enumerate(again) if one.fits] or [0]
    best = min(usable, key=lambda index: again[index].step_seconds)
    return Doubt(
        assumption=assumption,
        step_seconds=again[0].step_seconds,
        best=best,
        best_seconds=again[best].step_seconds,
        fits=again[0].fits,
    )


def _slower_between(cluster: Cluster) -> Cluster:
    """The network between nodes at half its rate."""
    rate = cluster.link.bandwidth_bytes_per_second / 2
    return replace(cluster, link=replace(cluster.link, bandwidth_bytes_per_second=rate))


def _slower_inside(cluster: Cluster) -> Cluster:
    """Links inside nodes at half their rate."""
    groups = tuple(
        replace(
            group,
            link=replace(
                group.link, bandwidth_bytes_per_second=group.link.bandwidth_bytes_per_second / 2
            ),
        )
        for group in cluster.groups
    )
    return replace(cluster, groups=groups)


def _slower_products(cluster: Cluster) -> Cluster:
    """Matrix products at four fifths of their rate."""

    def slowed(device: Device | None) -> Device | None:
        if device is None:
            return None
        known = device.efficiency
        return replace(device, efficiency=replace(known, sustained=0.8 * known.sustained))

    groups = tuple(replace(group, device=slowed(group.device)) for group in cluster.groups)
    return replace(cluster, groups=groups)


def _less_memory(cluster: Cluster) -> Cluster:
    """A tenth of the memory lost to what the account does not know of."""
    groups = tuple(
        replace(group, memory_bytes=0.9 * group.memory_bytes) for group in cluster.groups
    )
    return replace(cluster, groups=groups)


_WORLDS: Mapping[str, Callable[[Cluster], Cluster]] = MappingProxyType(
    {
        "the network between nodes is half as fast": _slower_between,
        "links inside nodes are half as fast": _slower_inside,
        "products run at 80% of their rate": _slower_products,
        "a tenth of the memory is lost": _less_memory,
    }
)
"""Clusters that differ from what was assumed, by a phrase for it."""
