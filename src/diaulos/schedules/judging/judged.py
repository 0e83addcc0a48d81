"""Plans chosen by simulation: with a flush, closed forms do not see all that stages wait for.

Stages of unequal degrees pass microbatches on in different rhythms, messages overlap with
computation, and reductions with the drain. So the plan that is best by the closed form is where a
search by simulation starts from, together with balanced plans of equal degrees and every depth.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from diaulos.planning.evaluation.evaluate import Evaluation, evaluate
from diaulos.planning.exact import exact
from diaulos.planning.local_search.balance import Balance
from diaulos.planning.local_search.neighbours import Neighbours
from diaulos.planning.local_search.outlines import Outline, Outlines
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem, PlanningResult
from diaulos.planning.search.watch import Watch
from diaulos.schedules.judging.trials import Trial, Trials
from diaulos.schedules.plans import simulate_plan

_MOST_OUTLINES = 20_000
"""Where there are no more, all are tried."""
_MOST_WORK = 5_000_000
"""Microbatches times stages that a search simulates: some ten seconds."""
_PATIENCE = 8
"""Plans around which a search finds nothing better before it ends."""
_STEADY_BATCHES = 3
"""Without a flush: enough to see from the end of one batch to the end of the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPlan:
    """A plan with two figures for its batch: by the closed form, and simulated."""

    plan: Plan
    evaluation: Evaluation
    simulated_seconds: float
    """Of a batch; without a flush from the end of one batch to that of the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The plan that is fastest when it is simulated, and what it was compared with."""

    result: PlanningResult
    """The answer; proven optimal where every plan was tried (without a flush, by the search)."""
    best: JudgedPlan | None
    """None where no plan keeps to the limits."""
    considered: tuple[JudgedPlan, ...]
    """The best by the closed form, then the fastest of each depth of which some were simulated."""
    simulations: int


def fastest_by_simulation(problem: PlanningProblem, watch: Watch | None = None) -> Judgement:
    """The plan whose batch the simulator ends first, under the problem's schedule.

    Of a small problem all plans are tried, unless a bound shows that they are slower: on a cluster
    of one node no plan is faster, and the answer is proven. Of others it is the best of what a
    local search meets, and never worse than the plan of the exact planner. Without a flush it is
    the plan of the exact planner.

    `watch` ends the search by the closed form and that by simulation; Ctrl-C ends either.
    """
    start = time.perf_counter()
    alarm = Watch() if watch is None else watch
    closed_form = exact(problem, alarm)
    if closed_form.plan is None:
        return Judgement(result=closed_form, best=None, considered=(), simulations=0)
    first = judged(problem, closed_form.plan)
    if not problem.pipelining.flushes:
        return Judgement(result=closed_form, best=first, considered=(first,), simulations=1)
    outlines = Outlines.of(problem)
    assert outlines is not None, "there is a plan"
    everything = outlines.first(_MOST_OUTLINES + 1)
    is_small = len(everything) <= _MOST_OUTLINES
    trials = Trials(outlines=outlines, tries_options=is_small)
    has_all = _hunt(trials, closed_form.plan, everything if is_small else None, alarm)
    by_depth = [
        JudgedPlan(
            plan=found.plan,
            evaluation=_evaluation(problem, found.plan),
            simulated_seconds=found.seconds,
        )
        for _, found in sorted(trials.best_of_depth.items())
    ]
    best = min((first, *by_depth), key=_order)
    count = len(trials.simulated) + 1
    result = replace(
        closed_form,
        plan=best.plan,
        evaluation=best.evaluation,
        proven_optimal=has_all,
        search_seconds=time.perf_counter() - start,
        lower_bound_seconds=None,
        remark=None if has_all else "found by a local search that simulates plans",
    )
    return Judgement(result=result, best=best, considered=(first, *by_depth), simulations=count)


def _order(judged: JudgedPlan) -> tuple[float, int, int]:
    seconds = judged.simulated_seconds
    return seconds, judged.plan.devices_used, len(judged.plan.stages)


def judged(problem: PlanningProblem, plan: Plan) -> JudgedPlan:
    """Both figures of a plan, under the problem's schedule."""
    flushes = problem.pipelining.flushes
    timeline = simulate_plan(
        problem.graph,
        plan,
        problem.cluster,
        schedule=problem.pipelining.name,
        batches=1 if flushes else _STEADY_BATCHES,
    )
    return JudgedPlan(
        plan=plan,
        evaluation=_evaluation(problem, plan),
        simulated_seconds=timeline.makespan_seconds if flushes else timeline.step_seconds,
    )


def _evaluation(problem: PlanningProblem, plan: Plan) -> Evaluation:
    return evaluate(problem.graph, plan, problem.cluster, problem.costs, problem.pipelining)


def _hunt(trials: Trials, start: Plan, everything: list[Outline] | None, watch: Watch) -> bool:
    """Try all plans, or search; whether none is left that may be faster."""
    outlines = trials.outlines
    known = outlines.outline(start)
    try:
        _try(trials, [] if known is None else [known], watch)
        if everything is None:
            balance = Balance(outlines=outlines)
            _try(trials, balance.even(), watch)
            _search(trials, Neighbours(outlines, balance), watch)
            _try_options(trials, watch)
            return False
        _try(trials, everything, watch)
    except KeyboardInterrupt:
        return False
    return outlines.are_all and trials.has_all_options and not _is_over(trials, watch)


def _try(trials: Trials, some: Iterable[Outline], watch: Watch) -> None:
    """Simulate those that may be the fastest, the most promising first."""
    for trial in trials.new(takewhile(lambda _: not _is_over(trials, watch), some)):
        if trial.least_seconds >= trials.best_seconds or _is_over(trials, watch):
            return
        _simulate(trials, trial, watch)


def _search(trials: Trials, neighbours: Neighbours, watch: Watch) -> None:
    """Look around the fastest plans, until nothing better is found around several of them."""
    done: set[Outline] = set()
    near: list[Trial] = []
    patience = _PATIENCE
    while patience and not _is_over(trials, watch):
        fresh = [outline for outline in trials.simulated if outline not in done]
        if not fresh:
            return
        outline = min(fresh, key=lambda some: trials.simulated[some].rank)
        done.add(outline)
        around = takewhile(lambda _: not _is_over(trials, watch), neighbours.of(outline))
        near = sorted([*near, *trials.new(around)], key=trials.promise)
        before = trials.best_seconds
        while near and trials.best_seconds == before and not _is_over(trials, watch):
            trial = near.pop(0)
            if trial.least_seconds < before:
                _simulate(trials, trial, watch)
        patience = _PATIENCE if trials.best_seconds < before else patience - 1


def _try_options(trials: Trials, watch: Watch) -> None:
    """Other options for the fastest plans than those that compute fastest."""
    fastest = sorted(trials.simulated, key=lambda outline: trials.simulated[outline].rank)
    finer = Trials(outlines=trials.outlines, tries_options=True)
    _try(finer, fastest[:_PATIENCE], watch)
    trials.take(finer)


def _simulate(trials: Trials, trial: Trial, watch: Watch) -> None:
    space = trials.outlines.judge.space
    trials.simulate(trial)
    watch.tell(
        bound_seconds=space.batch_seconds(space.least_batch_time),
        best_seconds=trials.best_seconds,
    )


def _is_over(trials: Trials, watch: Watch) -> bool:
    return trials.work > _MOST_WORK or watch.is_over
