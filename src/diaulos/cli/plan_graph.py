"""`diaulos plan` for a layer graph: the fastest cut into stages on a cluster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diaulos.cli.microbatch_sizes import SizedGraph, sized_graphs
from diaulos.cli.output import make_console, print_json
from diaulos.cli.problem import ProblemFlags
from diaulos.cli.progress import progress_display
from diaulos.errors import InfeasibleError
from diaulos.planning.evaluation.pipelining import PIPELININGS, Pipelining
from diaulos.planning.exact import exact
from diaulos.planning.explanation.infeasibility import explain_infeasibility
from diaulos.planning.files import stage_documents, write_plan
from diaulos.planning.planners import PLANNERS
from diaulos.planning.problem import PlanningProblem, PlanningResult
from diaulos.planning.search.watch import Watch
from diaulos.reporting.idle import idle_sentence
from diaulos.reporting.infeasibility import infeasibility_document, infeasibility_sentences
from diaulos.reporting.judged import (
    judgement_document,
    judgement_sentence,
    schedule_documents,
    schedule_reasons,
    schedules_table,
)
from diaulos.reporting.tables import plan_sentence, plan_table, proof_phrase
from diaulos.schedules.judging.judged import Judgement, fastest_by_simulation, judged
from diaulos.schedules.judging.schedule_choice import ScheduleStanding, compare_schedules
from diaulos.units import format_seconds


def plan_graph(
    graph: Path,
    given: ProblemFlags,
    *,
    also: Sequence[Path],
    planner: str,
    time_limit: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find the plan of a layer graph with the least time per batch, print it, and write it.

    `also` are the same layers priced for other microbatch sizes, which are tried as well.
    """
    sized = sized_graphs(given, graph, also)
    answered = [_answered(one, planner, time_limit, quiet=as_json) for one in sized]
    best = min(range(len(sized)), key=lambda index: answered[index][1].batch_seconds)
    (problem, answer), chosen = answered[best], sized[best]
    result = answer.result
    if result.plan is None or result.evaluation is None:
        raise _no_plan(problem, result, as_json=as_json)
    if as_json:
        size = {} if chosen.microbatch_size is None else {"microbatch_size": chosen.microbatch_size}
        print_json({**result_document(problem, result), **answer.document, **size})
    if output is not None:
        write_plan(
            output,
            result.plan,
            result.evaluation,
            graph_path=chosen.path,
            cluster=problem.cluster,
            costs=problem.costs,
            time_unit=chosen.file.time_unit,
            made_by=_made_by(problem, answer),
        )
    if not as_json:
        _print(problem, answer)
        if also:
            make_console().print(_sizes_sentence(sized, answered, best))


def _answered(
    one: SizedGraph, planner: str, time_limit_seconds: float, *, quiet: bool
) -> tuple[PlanningProblem, "_Answer"]:
    """What is planned for a graph, under the schedule that was taken, and the answer."""
    given = one.flags
    if given.unsized.schedule == "auto" and planner == "exact":
        unsized = replace(given.unsized, schedule="2bw")
        problem = replace(given, unsized=unsized).problem(one.file)
        answer = _compare(problem, time_limit_seconds, as_json=quiet)
        return replace(problem, pipelining=answer.pipelining), answer
    problem = given.problem(one.file)
    return problem, _ask(planner, problem, time_limit_seconds, quiet=quiet)


def _sizes_sentence(
    sized: Sequence[SizedGraph],
    answered: Sequence[tuple[PlanningProblem, "_Answer"]],
    best: int,
) -> str:
    """Which microbatch size was taken, and what the others come to."""
    others = [
        f"{one.microbatch_size}: "
        + ("no plan" if math.isinf(answer.batch_seconds) else format_seconds(answer.batch_seconds))
        for index, (one, (_, answer)) in enumerate(zip(sized, answered, strict=True))
        if index != best
    ]
    return f"microbatches of {sized[best].microbatch_size}; of {', '.join(others)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A planner's answer, and what simulation had to do with it."""

    result: PlanningResult
    judgement: Judgement | None = None
    standings: tuple[ScheduleStanding, ...] = ()
    """All schedules, where they were compared."""

    @property
    def batch_seconds(self) -> float:
        """By simulation where there was one; forever where there is no plan."""
        if self.judgement is not None and self.judgement.best is not None:
            return self.judgement.best.simulated_seconds
        found = self.result.evaluation
        return math.inf if found is None else found.batch_seconds

    @property
    def pipelining(self) -> Pipelining:
        assert self.result.evaluation is not None
        return self.result.evaluation.pipelining

    @property
    def document(self) -> dict[str, Any]:
        """What JSON says of the simulation; nothing where there was none."""
        if self.judgement is None:
            return {}
        document = {"schedule": self.pipelining.name, **judgement_document(self.judgement)}
        if self.standings:
            document["schedules"] = schedule_documents(self.standings)
        return document


def _ask(
    planner: str, problem: PlanningProblem, time_limit_seconds: float, *, quiet: bool
) -> _Answer:
    """The answer of a planner; progress is shown where somebody looks.

    Plans with a flush are simulated: the exact planner's answer is chosen by that.
    """
    if planner != "exact":
        return _simulated(problem, PLANNERS[planner](problem))
    with progress_display(quiet=quiet) as report:
        watch = Watch(time_limit_seconds=time_limit_seconds, report=report)
        if not problem.pipelining.flushes:
            return _Answer(result=exact(problem, watch))
        judgement = fastest_by_simulation(problem, watch)
    return _Answer(result=judgement.result, judgement=judgement)


def _simulated(problem: PlanningProblem, result: PlanningResult) -> _Answer:
    """An answer that stays as it is, with the simulator's figure where a batch is flushed."""
    if result.plan is None or not problem.pipelining.flushes:
        return _Answer(result=result)
    known = judged(problem, result.plan)
    judgement = Judgement(result=result, best=known, considered=(known,), simulations=1)
    return _Answer(result=result, judgement=judgement)


def _compare(problem: PlanningProblem, time_limit_seconds: float, *, as_json: bool) -> _Answer:
    """The answer under the schedule that suits a problem best; each has its part of the time."""
    with progress_display(quiet=as_json) as report:
        standings = compare_schedules(
            problem,
            lambda: Watch(time_limit_seconds=time_limit_seconds / len(PIPELININGS), report=report),
        )
    first = standings[0].judgement
    if first is None or first.best is None:
        if as_json:
            documents = schedule_documents(standings)
            print_json({"feasible": False, "planner": "exact", "schedules": documents})
        raise InfeasibleError("\n  ".join(schedule_reasons(standings)))
    return _Answer(result=first.result, judgement=first, standings=standings)


def result_document(problem: PlanningProblem, result: PlanningResult) -> dict[str, Any]:
    """The JSON of a planner's answer."""
    document: dict[str, Any] = {
        "feasible": result.plan is not None,
        "planner": result.planner,
        "microbatches": problem.microbatches,
        "proven_optimal": result.proven_optimal,
        "lower_bound_seconds": result.lower_bound_seconds,
        "remark": result.remark,
        "search_seconds": result.search_seconds,
    }
    if result.plan is None or result.evaluation is None:
        return {**document, "reason": result.reason}
    return {
        **document,
        "time_per_sample_seconds": result.evaluation.time_per_sample_seconds,
        "batch_seconds": result.evaluation.batch_seconds,
        "devices_used": result.plan.devices_used,
        "stages": stage_documents(result.plan, result.evaluation, problem.cluster),
    }


def _no_plan(problem: PlanningProblem, result: PlanningResult, *, as_json: bool) -> InfeasibleError:
    """The error with the reason and what would do, which is printed as JSON where asked."""
    found = explain_infeasibility(problem) if result.proven_optimal else None
    if as_json:
        document = {} if found is None else infeasibility_document(found)
        print_json({**result_document(problem, result), **document})
    sentences = [] if found is None else infeasibility_sentences(problem, found)
    return InfeasibleError("\n  ".join((f"no plan: {result.reason}", *sentences)))


def _made_by(problem: PlanningProblem, answer: _Answer) -> dict[str, str]:
    switches = ("data_parallel", "tensor_parallel", "recompute")
    off = [name for name in switches if not getattr(problem, name)]
    without = {"without": ", ".join(off)} if off else {}
    judge = {} if answer.judgement is None else {"judge": "simulator"}
    proven = "true" if answer.result.proven_optimal else "false"
    return {"planner": answer.result.planner, "proven_optimal": proven, **judge, **without}


def _print(problem: PlanningProblem, answer: _Answer) -> None:
    result = answer.result
    assert result.plan is not None
    assert result.evaluation is not None
    console = make_console()
    if answer.standings:
        console.print(schedules_table(answer.standings))
        for reason in schedule_reasons(answer.standings):
            console.print(reason)
        console.print()
    console.print(plan_table(problem.graph, result.plan, result.evaluation, problem.cluster))
    proof = proof_phrase(result)
    console.print(
        f"{plan_sentence(result.plan, result.evaluation, problem.cluster)}; {proof}, found by the "
        f"{result.planner} planner in {format_seconds(result.search_seconds)}"
    )
    if answer.judgement is not None:
        console.print(judgement_sentence(answer.judgement))
    idle = idle_sentence(problem, result)
    if idle is not None:
        console.print(idle)
