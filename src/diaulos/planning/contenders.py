"""Plans among which a finer judge may choose: the best of each depth, by the closed form."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from diaulos.planning.exact import contractions, plan_of
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.flush import fastest_flush, fastest_of_depth
from diaulos.planning.search.placement import Judge
from diaulos.planning.search.space import build_space
from diaulos.planning.watch import Watch

_WORTH_A_LOOK = Fraction(100, 10)
"""Plans that are slower than the fastest by more than this are left out."""


def contenders(problem: PlanningProblem, watch: Watch | None = None) -> Iterator[Plan]:
    """The fastest plan with a flush, then that of each other depth that is not much slower.

    Nothing where no plan fits. Ends when `watch` says so.
    """
    alarm = Watch() if watch is None else watch
    contraction = next(contractions(problem))
    space = build_space(replace(problem, graph=contraction.graph), contraction.order_edges)
    if space is None:
        return
    judge = Judge(space=space)
    best = fastest_flush(judge, alarm)
    if best.plan is None:
        return
    yield contraction.expand(plan_of(judge, best.plan))
    most = best.bound * _WORTH_A_LOOK if best.is_proven else None
    deepest = min(len(contraction.graph.layers), problem.replicas_limit)
    for stages in range(1, deepest + 1):
        if most is None or alarm.is_over:
            return
        found = None if stages == len(best.plan) else fastest_of_depth(judge, stages, most)
        if found is not None:
            yield contraction.expand(plan_of(judge, found.plan))
