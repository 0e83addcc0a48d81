"""The exact planner: a search on the value of the bottleneck, proven optimal.

The time per sample is a maximum over stages, so the question "is there a plan in which every
stage keeps to a threshold?" is easy to answer (see `search.cover`), and the least threshold with
the answer yes is the optimum. It is found by halving the interval between a bound and the best plan
known, and proven by the answer no to "is there a plan strictly faster than the best?", in whole
numbers and without a tolerance. Among the plans that are as fast, `search.ties` picks one.
"""

from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem, PlanningResult, answer
from diaulos.planning.search.flush import fastest_flush
from diaulos.planning.search.placement import Judge
from diaulos.planning.search.space import build_space
from diaulos.planning.search.steady import fastest_steady


def exact(problem: PlanningProblem) -> PlanningResult:
    """The plan with the least time per sample of all plans of a problem.

    Among plans whose times agree to one part in 1e12: on the fewest devices, then with the fewest
    stages, then with the least memory summed over all devices, then the first when stages are
    compared from the input end by their layers (in topological order), data-parallel degree and
    tensor-parallel degree. Stages take their fastest options; among equal ones those of least
    memory, then those that stand first in the source.
    """
    return answer(problem, _search, planner="exact", proves=True)


def _search(problem: PlanningProblem) -> Plan | None:
    space = build_space(problem)
    if space is None:
        return None
    judge = Judge(space=space)
    best = fastest_flush(judge) if space.flushes else fastest_steady(judge)
    if best is None:
        return None
    stages = [judge.stage(placement) for placement in best]
    return Plan(stages=tuple(stages), microbatches=problem.microbatches)
