"""What other plans there would be: with a new search, more devices, or more memory.

Each is computed by planning again. More devices or memory are looked for on clusters of one group.
"""

from dataclasses import dataclass, replace

from diaulos.clusters.cluster import Cluster
from diaulos.planning.exact import exact, is_searched_whole
from diaulos.planning.explanation.resizing import (
    device_unit,
    most_devices,
    with_devices,
    with_memory,
)
from diaulos.planning.problem import PlanningProblem, PlanningResult

FASTER = 1 - 1e-9
"""Times that agree to this part are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another cluster and the best plan there."""

    cluster: Cluster
    result: PlanningResult

    @property
    def batch_seconds(self) -> float:
        """Of its plan."""
        assert self.result.evaluation is not None
        return self.result.evaluation.batch_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What would change the time of a plan; each None where it does not help."""

    new_plan: Alternative | None
    """The best plan on the same cluster, where it is faster than the one given."""
    more_devices: Alternative | None
    """The fewest devices that help (on clusters of several nodes, whole ones)."""
    more_memory: Alternative | None
    """The memory that is asked about."""
    proven: bool
    """Whether what is said not to help cannot help; on graphs of too many layers in parallel the
    planner does not find all that could."""


def what_if(problem: PlanningProblem, batch_seconds: float, *, more_memory_bytes: float) -> WhatIf:
    """What beats a plan of a problem that takes so many seconds per batch.

    More devices and more memory must also beat the best plan without them.
    """
    here = _better(problem, problem.cluster, batch_seconds)
    proven = is_searched_whole(problem)
    best = batch_seconds if here is None else here.batch_seconds
    if len(problem.cluster.groups) > 1:
        return WhatIf(new_plan=here, more_devices=None, more_memory=None, proven=proven)
    memory_bytes = problem.cluster.largest_memory_bytes + more_memory_bytes
    return WhatIf(
        new_plan=here,
        more_devices=_more_devices(problem, best),
        more_memory=_better(problem, with_memory(problem.cluster, memory_bytes), best),
        proven=proven,
    )


def _better(problem: PlanningProblem, cluster: Cluster, batch_seconds: float) -> Alternative | None:
    """The best plan on a cluster, where it is faster than a time."""
    result = exact(replace(problem, cluster=cluster))
    if result.evaluation is None or result.evaluation.batch_seconds >= batch_seconds * FASTER:
        return None
    return Alternative(cluster=cluster, result=result)


def _more_devices(problem: PlanningProblem, batch_seconds: float) -> Alternative | None:
    """The fewest more devices with which a plan is faster, by halving: more are never slower."""
    unit, most = device_unit(problem.cluster), most_devices(problem)

    def at(devices: int) -> Alternative | None:
        cluster = with_devices(problem.cluster, devices)
        return _better(problem, cluster, batch_seconds)

    too_few, step, found = problem.cluster.devices, unit, None
    while found is None and too_few < most:
        count = min(too_few + step, most)
        found = at(count)
        if found is None:
            too_few, step = count, 2 * step
    while found is not None and found.cluster.devices - too_few > unit:
        count = (too_few + found.cluster.devices) // (2 * unit) * unit
        fewer = at(count)
        too_few, found = (count, found) if fewer is None else (too_few, fewer)
    return found
