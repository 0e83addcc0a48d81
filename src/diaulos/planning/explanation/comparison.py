"""Planners and ablations side by side on one problem, as in figure 1 of Piper's paper."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from diaulos.errors import InputError
from diaulos.planning.baselines.equal import equal
from diaulos.planning.baselines.pipedream import pipedream
from diaulos.planning.exact import exact
from diaulos.planning.problem import Planner, PlanningProblem, PlanningResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A planner, and what plans may not do when it is asked."""

    name: str
    planner: Planner
    switches: Mapping[str, bool] = field(default_factory=dict)
    """Switches of the problem that are set, by their name."""

    def problem(self, given: PlanningProblem) -> PlanningProblem:
        """The problem with the switches set; what was off stays off."""
        switches: dict[str, Any] = {
            name: value and getattr(given, name) for name, value in self.switches.items()
        }
        return replace(given, **switches)


ABLATIONS = (
    Contender(name="exact", planner=exact),
    Contender(name="no-data-parallel", planner=exact, switches={"data_parallel": False}),
    Contender(name="no-tensor-parallel", planner=exact, switches={"tensor_parallel": False}),
    Contender(name="no-recompute", planner=exact, switches={"recompute": False}),
)
"""The exact planner, and without each of its three means in turn."""

CONTENDERS = (
    *ABLATIONS,
    Contender(name="equal", planner=equal),
    Contender(name="equal, no-tensor-parallel", planner=equal, switches={"tensor_parallel": False}),
    Contender(name="pipedream", planner=pipedream),
)
"""Who is compared unless something else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one contender answers."""

    name: str
    result: PlanningResult | None
    """None where its planner does not know problems of this kind."""
    reason: str | None
    """Why there is no plan."""
    ratio: float | None
    """Its seconds per batch by those of the best plan of all contenders; None without a plan."""


def compare(
    problem: PlanningProblem, contenders: Iterable[Contender] = CONTENDERS
) -> tuple[Standing, ...]:
    """What each contender makes of a problem, in their order."""
    answers = [(contender.name, *_ask(contender, problem)) for contender in contenders]
    seconds = [_batch_seconds(result) for _, result, _ in answers]
    best = min(seconds, default=math.inf)
    return tuple(
        Standing(name=name, result=result, reason=reason, ratio=_ratio(time, best))
        for (name, result, reason), time in zip(answers, seconds, strict=True)
    )


def _ask(
    contender: Contender, problem: PlanningProblem
) -> tuple[PlanningResult | None, str | None]:
    """The answer of a contender and why there is no plan."""
    try:
        result = contender.planner(contender.problem(problem))
    except InputError as error:
        return None, str(error)
    if result.plan is None and not result.proven_optimal:
        return result, "none of the plans that this planner tries keeps to the limits"
    return result, result.reason


def _batch_seconds(result: PlanningResult | None) -> float:
    """Of the plan that was found; forever where there is none."""
    if result is None or result.evaluation is None:
        return math.inf
    return result.evaluation.batch_seconds


def _ratio(seconds: float, best: float) -> float | None:
    if math.isinf(seconds):
        return None
    return seconds / best if best > 0 else 1.0
