"""Which schedule to train with: each with the plan that suits it best, side by side."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from diaulos.errors import InputError
from diaulos.planning.evaluation.pipelining import PIPELININGS, Pipelining
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.watch import Watch
from diaulos.schedules.judging.judged import Judgement, fastest_by_simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleStanding:
    """What a schedule comes to."""

    pipelining: Pipelining
    judgement: Judgement | None
    """None where the problem cannot be planned for it."""
    reason: str | None
    """Why there is no plan."""

    @property
    def seconds(self) -> float:
        """Of a batch, simulated; infinite where there is no plan."""
        known = None if self.judgement is None else self.judgement.best
        return float("inf") if known is None else known.simulated_seconds


def compare_schedules(
    problem: PlanningProblem, watch: Callable[[], Watch] = Watch
) -> tuple[ScheduleStanding, ...]:
    """All schedules that can be planned for, the fastest first.

    The problem's own schedule does not count. `watch` looks after each.
    """
    standings = [
        _standing(replace(problem, pipelining=pipelining), watch())
        for pipelining in PIPELININGS.values()
    ]
    return tuple(sorted(standings, key=lambda standing: standing.seconds))


def _standing(problem: PlanningProblem, watch: Watch) -> ScheduleStanding:
    judgement, reason = None, None
    try:
        judgement = fastest_by_simulation(problem, watch)
        reason = judgement.result.reason
    except InputError as error:
        reason = str(error)
    return ScheduleStanding(pipelining=problem.pipelining, judgement=judgement, reason=reason)
