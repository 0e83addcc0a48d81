"""The exact planner: a search on the value of the bottleneck, proven optimal.

The time per sample is a maximum over stages, so the question "is there a plan in which every
stage keeps to a threshold?" is easy to answer (see `cover`), and the least threshold with the
answer yes is the optimum. It is found by halving the interval between a bound and the best plan
known, and proven by the answer no to "is there a plan strictly faster than the best?", in whole
numbers and without a tolerance. Among the plans that are as fast, `ties` picks one.
"""

from collections.abc import Sequence
from fractions import Fraction

from diaulos.planning.cover import Threshold, candidates, fewest, trace
from diaulos.planning.placement import Placement, bottleneck, build_stage, keeps_to
from diaulos.planning.plan import Plan
from diaulos.planning.problem import (
    PlanningProblem,
    PlanningResult,
    answer,
    refuse_all_but_piper,
)
from diaulos.planning.space import Space, build_space
from diaulos.planning.ties import break_ties

_FIRST_STEPS = (1.02, 1.05, 1.1, 1.25, 1.6, 2.5, 6.0, 36.0)
"""Multiples of the bound that are tried before any plan is known."""
_MISSES_BEFORE_PROOF = 2
_FOREVER = Fraction(2**62)


def exact(problem: PlanningProblem) -> PlanningResult:
    """The plan with the least time per sample of all plans of a problem.

    Among plans whose times agree to one part in 1e12: on the fewest devices, then with the fewest
    stages, then with the least memory summed over all devices, then the first when stages are
    compared from the input end by their layers (in topological order), data-parallel degree and
    tensor-parallel degree. Stages take their fastest options; among equal ones those of least
    memory, then those that stand first in the source.
    """
    refuse_all_but_piper(problem, planner="exact")
    return answer(problem, _search, planner="exact", proves=True)


def _search(problem: PlanningProblem) -> Plan | None:
    space = build_space(problem)
    if space is None:
        return None
    found = _first_cover(space)
    if found is None:
        return None
    best = _fastest_cover(space, *found)
    stages = [build_stage(space, placement) for placement in break_ties(space, best)]
    return Plan(stages=tuple(stages), microbatches=problem.microbatches)


def _first_cover(space: Space) -> tuple[int, Sequence[Placement]] | None:
    """Some plan near the optimum, and a time that no plan can stay below."""
    slowest = space.least_time
    for step in _FIRST_STEPS:
        threshold = Threshold(time=Fraction(int(space.least_time * step)))
        cover = _find_cover(space, threshold, better_than=_FOREVER)
        if cover is not None:
            return slowest, cover
        slowest = int(threshold.time)
    cover = _find_cover(space, Threshold(time=_FOREVER), better_than=_FOREVER)
    return None if cover is None else (slowest, cover)


def _fastest_cover(space: Space, bound: int, best: Sequence[Placement]) -> Sequence[Placement]:
    """An optimal plan, from some plan and a bound."""
    misses = 0
    while True:
        time = bottleneck(space, best)
        middle = Threshold(time=Fraction(int(bound + time) // 2))
        is_proof = misses >= _MISSES_BEFORE_PROOF or middle.time >= time or time <= bound
        below = Threshold(time=time, strict=True)
        cover = _find_cover(space, below if is_proof else middle, better_than=time)
        if cover is not None:
            best, misses = cover, 0
        elif is_proof:
            return best
        else:
            bound, misses = int(middle.time), misses + 1


def _find_cover(
    space: Space, threshold: Threshold, *, better_than: Fraction
) -> Sequence[Placement] | None:
    """Stages from the input end that keep to a threshold, or at least are better than some time.

    None where no stages keep to the threshold. Candidates are judged by lower bounds of their
    times; those that a plan would be made of are made exact, until a plan holds.
    """
    while True:
        chosen = candidates(space, threshold, space.devices)
        table = fewest(space, chosen)
        if int(table[-1].min()) // space.stage_weight > space.devices:
            return None
        cover = [Placement.of(chosen, *step) for step in trace(space, chosen, table)]
        confirmed = [keeps_to(space, placement, threshold) for placement in cover]
        if all(confirmed) or bottleneck(space, cover) < better_than:
            return cover
