"""The best plan on each of a row of clusters: time against devices, time against memory.

All clusters of a row are flat and each has what the one before it has and more, so that every plan
for one is a plan for those behind it, at the same price. An optimal plan that keeps to the limits
of a smaller cluster is therefore optimal there too, and where a cluster has no plan, no smaller one
has: planning from the largest down, a planner is asked only where neither tells the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.problem import Planner, PlanningProblem, PlanningResult


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """A cluster and the best plan there."""

    cluster: Cluster
    result: PlanningResult
    """Its `search_seconds` are 0 where a larger cluster's answer was the answer."""

    @property
    def batch_seconds(self) -> float | None:
        """Of the plan; None where there is none."""
        return None if self.result.evaluation is None else self.result.evaluation.batch_seconds


def device_clusters(cluster: Cluster, counts: Sequence[int]) -> tuple[Cluster, ...]:
    """A flat cluster with each of some numbers of devices."""
    return tuple(cluster.with_flat(devices=count) for count in counts)


def memory_clusters(cluster: Cluster, sizes_bytes: Sequence[float]) -> tuple[Cluster, ...]:
    """A flat cluster with each of some sizes of memory on its devices."""
    return tuple(cluster.with_flat(memory_bytes=size) for size in sizes_bytes)


def frontier(
    problem: PlanningProblem, clusters: Sequence[Cluster], planner: Planner
) -> tuple[FrontierPoint, ...]:
    """The planner's answer to a problem on each of some flat clusters, which grow.

    An `InputError` where they are not flat or do not grow.
    """
    _check_growth(clusters)
    points: list[FrontierPoint] = []
    for cluster in reversed(clusters):
        here = replace(problem, cluster=cluster)
        known = _answered_by(points[-1].result, here) if points else None
        points.append(FrontierPoint(cluster=cluster, result=known or planner(here)))
    return tuple(reversed(points))


def _answered_by(larger: PlanningResult, problem: PlanningProblem) -> PlanningResult | None:
    """The answer of a larger cluster as that of a smaller one; None where it is none there."""
    if not larger.proven_optimal:
        return None
    if larger.plan is None:
        return replace(larger, reason=problem.infeasibility(), search_seconds=0.0)
    given = (problem.graph, larger.plan, problem.cluster, problem.costs, problem.pipelining)
    if violations(*given):
        return None
    return replace(larger, evaluation=evaluate(*given), search_seconds=0.0)


def _check_growth(clusters: Sequence[Cluster]) -> None:
    for cluster in clusters:
        if not cluster.is_flat:
            raise InputError(
                f"the cluster {cluster.name!r} has several nodes",
                "a frontier is drawn over flat clusters, where less of them is clear",
            )
    for smaller, larger in pairwise(clusters):
        grown = larger.with_flat(devices=smaller.devices, memory_bytes=smaller.largest_memory_bytes)
        is_larger = (
            larger.devices >= smaller.devices
            and larger.largest_memory_bytes >= smaller.largest_memory_bytes
        )
        if grown != smaller or not is_larger:
            raise InputError(
                "the clusters of a frontier do not grow",
                "each has the devices and the memory of the one before it, or more, and its links",
            )
