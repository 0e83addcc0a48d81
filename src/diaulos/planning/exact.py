"""The exact planner: the fastest plan of all, with the proof.

Without a flush the time of a batch is that of the slowest stage, and the question "is there a plan
in which every stage keeps to a threshold?" is easy to answer (`search.cover`): the least threshold
with the answer yes is the optimum (`search.steady`). With a flush the latencies of all stages
count as well (`search.flush`). All is counted in whole numbers, without a tolerance.

A graph with many downsets is contracted where nothing is lost by it (`lossless`). If there are
still too many, its layers are ordered further (`coarsening`): then the plan is the best of those
that respect the order, and a bound says how far from the best of all it may be.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from diaulos.errors import InputError
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING, evaluate
from diaulos.planning.merging.coarsening import coarsen
from diaulos.planning.merging.contraction import Contraction, identity
from diaulos.planning.merging.downset_count import count_downsets
from diaulos.planning.merging.lossless import contract
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem, PlanningResult, SearchResult, answer
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.flush import fastest_flush, fits_at_all_flushed
from diaulos.planning.search.stage_costs.downsets import MOST_DOWNSETS, TooManyStagesError
from diaulos.planning.search.stage_costs.space import Space, build_space
from diaulos.planning.search.steady import fastest_steady, fits_at_all
from diaulos.planning.search.watch import Watch

_FEW_DOWNSETS = 1_000
"""A graph that has no more is searched as it is."""
_COARSE_DOWNSETS = (300, 3_000, MOST_DOWNSETS)


def exact(problem: PlanningProblem, watch: Watch | None = None) -> PlanningResult:
    """The plan with the least time of a batch of all plans of a problem.

    Among plans whose times agree to one part in 1e12: on the fewest devices, then with the fewest
    stages, then with the least memory summed over all devices, then the first when stages are
    compared from the input end by their layers (in topological order), data-parallel degree and
    tensor-parallel degree. Stages take their fastest options; among equal ones those of least
    memory, then those that stand first in the source. Where it matters on which devices stages
    stand, idle ones between stages count as taken and the rule ends with the stages; with a flush,
    and for graphs of more than a thousand downsets, it holds among the plans that the search
    meets.

    Optimality is not proven where `watch` stopped the search, or where the graph has too many
    downsets; `remark` says so.
    """
    alarm = Watch() if watch is None else watch
    return answer(problem, lambda given: _search(given, alarm), planner="exact")


def feasible(problem: PlanningProblem) -> bool:
    """Whether some plan keeps to the limits of a problem; for coarsened graphs, one that is found.

    Much quicker than to find the best one.
    """
    _, space = first_space(problem)
    if space is None:
        return False
    fits = fits_at_all_flushed if space.flushes else fits_at_all
    return fits(Judge(space=space))


def is_searched_whole(problem: PlanningProblem) -> bool:
    """Whether answers to a problem are about all plans, and not about some orders of its layers."""
    return first_space(problem)[0].is_lossless


def _search(problem: PlanningProblem, watch: Watch) -> SearchResult:
    best: SearchResult | None = None
    try:
        for contraction, space in _spaces(problem):
            found = _search_space(contraction, space, watch)
            if contraction.is_lossless:
                return found
            best = _better(problem, found, best)
            if best.proven_optimal or watch.is_over:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
    if best is None:
        raise _too_large(problem)
    return best


def first_space(problem: PlanningProblem) -> tuple[Contraction, Space | None]:
    """What is searched first; no space where some layer cannot run even alone."""
    for found in _spaces(problem):
        return found
    raise _too_large(problem)


def _spaces(problem: PlanningProblem) -> Iterator[tuple[Contraction, Space | None]]:
    """The contractions that have few enough stages to be searched, with their spaces."""
    for contraction in contractions(problem):
        given = replace(problem, graph=contraction.graph)
        try:
            space = build_space(given, contraction.order_edges)
        except TooManyStagesError:
            continue
        yield contraction, space


def contractions(problem: PlanningProblem) -> Iterator[Contraction]:
    """What is searched one after the other, until one works: without loss, or ever less of it."""
    graph = problem.graph
    if count_downsets(graph, most=_FEW_DOWNSETS) is not None:
        yield identity(graph)
        return
    lossless = contract(problem)
    if count_downsets(lossless.graph, lossless.order_edges, most=MOST_DOWNSETS) is not None:
        yield lossless
    for most in _COARSE_DOWNSETS:
        if len(lossless.graph.layers) < most:
            yield coarsen(lossless, most_downsets=most)


def _search_space(contraction: Contraction, space: Space | None, watch: Watch) -> SearchResult:
    if space is None:
        return SearchResult(plan=None, proven_optimal=True)
    judge = Judge(space=space)
    search = fastest_flush if space.flushes else fastest_steady
    outcome = search(judge, watch)
    plan = None if outcome.plan is None else contraction.expand(plan_of(judge, outcome.plan))
    if contraction.is_lossless:
        remark = None if outcome.is_proven else "the search was stopped before the proof"
        bound, is_proven = outcome.bound, outcome.is_proven
    else:
        # What is best in one order may not be so in others; the bound holds for all.
        remark = "the graph has too many downsets to search all: layers were put in an order"
        bound = space.least_batch_time
        meets_bound = outcome.bound <= bound * (1 + Fraction(RELATIVE_ROUNDING))
        is_proven = outcome.is_proven and outcome.plan is not None and meets_bound
    return SearchResult(
        plan=plan,
        proven_optimal=is_proven,
        lower_bound_seconds=space.batch_seconds(bound),
        remark=None if is_proven else remark,
    )


def plan_of(judge: Judge, placements: Sequence[Placement]) -> Plan:
    """The plan of some stages, from the input end."""
    stages = tuple(judge.stage(placement) for placement in placements)
    return Plan(stages=stages, microbatches=judge.space.problem.microbatches)


def _better(
    problem: PlanningProblem, found: SearchResult, best: SearchResult | None
) -> SearchResult:
    """The faster of two plans."""
    if best is None or _batch_seconds(problem, found) < _batch_seconds(problem, best):
        return found
    return best


def _batch_seconds(problem: PlanningProblem, found: SearchResult) -> float:
    if found.plan is None:
        return math.inf
    costs, pipelining = problem.costs, problem.pipelining
    return evaluate(problem.graph, found.plan, problem.cluster, costs, pipelining).batch_seconds


def _too_large(problem: PlanningProblem) -> InputError:
    return InputError(
        f"the graph has {len(problem.graph.layers)} layers",
        f"graphs of at most {MOST_DOWNSETS - 1} layers can be searched",
        "merge layers that always run together into one layer",
    )
