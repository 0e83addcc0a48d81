"""One stage of a plan in the making: its exact options, time and memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.cover import Candidates, Threshold
from diaulos.planning.evaluate import RELATIVE_ROUNDING
from diaulos.planning.fixed_point import MOST_UNITS
from diaulos.planning.increments import Units
from diaulos.planning.knapsack import Choice, choose_options
from diaulos.planning.plan import Stage
from diaulos.planning.space import Space
from diaulos.planning.stage_costs import StageCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A stage at a place in a plan, which decides how many microbatches are in flight."""

    pair: int
    setting: int
    data_parallel: int
    in_flight: int

    @classmethod
    def of(cls, chosen: Candidates, candidate: int, total: int) -> "Placement":
        """A candidate where the data-parallel degrees from it on sum up to `total`."""
        replicas = int(chosen.data_parallel[candidate])
        return cls(
            pair=int(chosen.pair[candidate]),
            setting=int(chosen.setting[candidate]),
            data_parallel=replicas,
            in_flight=-(-total // replicas),
        )


def fixed_time(space: Space, placement: Placement) -> int:
    """Time of all replicas that does not depend on the options, in units."""
    stages = space.settings[placement.setting]
    reduction = (placement.data_parallel - 1) * int(stages.reduction[placement.pair])
    return int(stages.communication[placement.pair]) + reduction


def time_per_sample(space: Space, placement: Placement) -> Fraction:
    """The time that a stage takes, in units; an upper bound until `keeps_to` confirmed it."""
    upper = space.settings[placement.setting].bounds(placement.pair, placement.in_flight)[1]
    return Fraction(upper + fixed_time(space, placement), placement.data_parallel)


def bottleneck(space: Space, placements: Sequence[Placement]) -> Fraction:
    """The time of the slowest stage, in units."""
    return max(time_per_sample(space, placement) for placement in placements)


def keeps_to(space: Space, placement: Placement, threshold: Threshold) -> bool:
    """Whether a candidate really keeps to a threshold; refines its bounds if they leave it open."""
    stages = space.settings[placement.setting]
    budget = threshold.of_all_replicas(placement.data_parallel) - fixed_time(space, placement)
    lower, upper = stages.bounds(placement.pair, placement.in_flight)
    if lower <= budget < upper:
        time = best_options(space, placement).time
        stages.refine(placement.pair, placement.in_flight, time)
        return time <= budget
    return upper <= budget


def memory(space: Space, placement: Placement) -> int:
    """Memory of a stage with its best options, in units."""
    stages, pair, count = space.settings[placement.setting], placement.pair, placement.in_flight
    if count <= stages.easy_in_flight[pair] and not _has_near_ties(stages):
        sums = stages.fastest_memory[count - 1]
        return int(sums[space.pairs.outer[pair]] - sums[space.pairs.inner[pair]])
    return best_options(space, placement).memory


def best_options(space: Space, placement: Placement) -> Choice:
    """The options of a stage: fastest, then least memory, then first in the source."""
    stages = space.settings[placement.setting]
    rows = layers_of(space, placement.pair)
    layers = stages.layers
    choice = choose_options(
        layers.times[rows] + _synchronisation(space, stages, rows),
        layers.memory(placement.in_flight)[rows],
        space.memory_limit,
        other_time=fixed_time(space, placement),
    )
    assert choice is not None, "candidates fit with the options that need least memory"
    return choice


def layers_of(space: Space, pair: int) -> NDArray[np.int64]:
    """Indices of the layers of a stage in topological order."""
    members = space.downsets.members
    return np.flatnonzero(members[space.pairs.outer[pair]] & ~members[space.pairs.inner[pair]])


def build_stage(space: Space, placement: Placement) -> Stage:
    """The stage of a plan that a placement stands for."""
    stages = space.settings[placement.setting]
    rows = layers_of(space, placement.pair)
    chosen = best_options(space, placement).options
    names = [
        stages.layers.options[row][option].name for row, option in zip(rows, chosen, strict=True)
    ]
    order = space.graph.topological_order
    return Stage(
        layers=tuple(order[row] for row in rows),
        data_parallel=placement.data_parallel,
        tensor_parallel=stages.layers.setting.tensor_parallel,
        options={order[row]: name for row, name in zip(rows, names, strict=True)},
    )


def _synchronisation(space: Space, stages: StageCosts, rows: NDArray[np.int64]) -> Units:
    """What each option of the stage's layers adds to the least cost of the cut edges."""
    inside = {int(row): place for place, row in enumerate(rows)}
    extra = np.zeros((len(rows), stages.layers.times.shape[1]), np.int64)
    for edge, (source, target) in enumerate(space.edge_ends):
        if target in inside and source not in inside:
            extra[inside[target]] += stages.layers.edge_in_extra[edge]
        if source in inside and target not in inside:
            extra[inside[source]] += stages.layers.edge_out_extra[edge]
    return extra


def _has_near_ties(stages: StageCosts) -> bool:
    """Whether options differ so little that they may be equal within the rounding of a stage."""
    times = stages.layers.times
    excess = times - times.min(axis=1, keepdims=True)
    return bool((excess[excess > 0] <= MOST_UNITS * RELATIVE_ROUNDING).any())
