"""The best configuration, a few others and what they are good for, and doubts."""

import time
from dataclasses import dataclass
from itertools import islice

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.estimate import Draft, Estimate
from diaulos.estimating.search.alternatives import Alternative, best_and_others
from diaulos.estimating.search.demand import Demand
from diaulos.estimating.search.doubts import Doubt, doubts
from diaulos.estimating.search.fastest import Search
from diaulos.models.operations import Model

_MOST_LOOKED_AT = 200
"""Configurations that are passed over while different ones are looked for."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The best configuration and others."""

    best: Estimate | None
    """None where no configuration fits."""
    others: tuple[Alternative, ...]
    """Fastest first."""
    doubts: tuple[Doubt, ...]
    leanest: tuple[Draft, float] | None
    """Of those that lack memory, the one that needs least, with how much that is at least."""
    configurations: int
    """How many there were to choose from."""
    simulated: int
    """Of how many the pipeline was simulated; the others cannot be among the answer."""
    search_seconds: float


def plan_configuration(
    model: Model, cluster: Cluster, demand: Demand, *, alternatives_wanted: int = 4
) -> Planned:
    """The fastest configuration that fits, and the fastest that differ from it."""
    start = time.perf_counter()
    search = Search(model, cluster, demand)
    near = islice(search.fastest_first(), _MOST_LOOKED_AT)
    best, others = best_and_others(near, alternatives_wanted)
    found = [] if best is None else [best, *(other.estimate for other in others)]
    return Planned(
        best=best,
        others=others,
        doubts=tuple(doubts(found)) if found else (),
        leanest=search.leanest,
        configurations=search.configurations,
        simulated=search.simulated,
        search_seconds=time.perf_counter() - start,
    )
