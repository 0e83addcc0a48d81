"""The least bottleneck: a search by halving, for schedules without a flush."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from diaulos.planning.evaluate import RELATIVE_ROUNDING
from diaulos.planning.search.cover import Cover, Limits
from diaulos.planning.search.moves import doubtful_moves
from diaulos.planning.search.placement import Judge, Placement
from diaulos.planning.search.scope import Scope
from diaulos.planning.search.threshold import Threshold
from diaulos.planning.search.ties import break_ties

_FIRST_STEPS = (1.02, 1.05, 1.1, 1.25, 1.6, 2.5, 6.0, 36.0)
"""Multiples of the bound that are tried before any plan is known."""
_MISSES_BEFORE_PROOF = 2
_FEWEST_DOUBTS = 10
_CANDIDATES_PER_DOUBT = 500
"""To make a stage exact takes as long as to judge so many candidates, about."""
_FOREVER = Fraction(2**62)
_TIE = 1 + 2 * Fraction(RELATIVE_ROUNDING)
_Plan = Sequence[Placement]


def fastest_steady(judge: Judge) -> _Plan | None:
    """The plan that the rule of `exact` picks, stages from the input end; None where none fits."""
    search = _Search(judge=judge, scope=Scope.all_of(judge.space))
    found = search.first()
    if found is None:
        return None
    plan = search.fastest(*found)
    return break_ties(judge, search.scope, bottleneck(judge, plan), plan[0].end)


def bottleneck(judge: Judge, plan: _Plan) -> Fraction:
    """The time of the slowest stage, in units; forever where one does not fit."""
    values = [judge.value(placement) for placement in plan]
    return max(_FOREVER if value is None else value for value in values)


@dataclass(kw_only=True)
class _Search:
    """What is known so far: exact times of stages, and which stages can still matter."""

    judge: Judge
    scope: Scope

    def first(self) -> tuple[int, _Plan] | None:
        """A time that no plan can stay below, and some plan near the optimum."""
        bound = least = self.judge.space.least_time
        for step in _FIRST_STEPS:
            time = min(Fraction(int(least * step)), _FOREVER)
            plan = self._keeping_to(Threshold(time=time), better_than=_FOREVER)
            if plan is not None:
                return bound, plan
            bound = int(time)
        plan = self._keeping_to(Threshold(time=_FOREVER), better_than=_FOREVER)
        return None if plan is None else (bound, plan)

    def fastest(self, bound: int, plan: _Plan) -> _Plan:
        """An optimal plan, from a bound and some plan."""
        misses = 0
        while True:
            time = bottleneck(self.judge, plan)
            middle = Fraction(int(bound + time) // 2)
            proves = misses >= _MISSES_BEFORE_PROOF or middle >= time or time <= bound
            threshold = Threshold(time=time, strict=True) if proves else Threshold(time=middle)
            better = self._keeping_to(threshold, better_than=time)
            if better is not None:
                plan, misses = better, 0
            elif proves:
                return plan
            else:
                bound, misses = int(middle), misses + 1

    def _keeping_to(self, threshold: Threshold, *, better_than: Fraction) -> _Plan | None:
        """A plan that keeps to a threshold, or at least is better than some time.

        None where no plan keeps to the threshold. Stages are judged by lower bounds of their
        times; those that a plan would be made of are made exact, until a plan holds.
        """
        judge, space = self.judge, self.judge.space
        limits = Limits(devices=space.devices)
        while True:
            cover = Cover.of(space, self.scope, threshold, judge.lessons, limits)
            best = cover.fewest()
            if not len(best):
                return None
            plan = cover.placements(int(best[0]))
            time = bottleneck(judge, plan)
            if time * _TIE <= threshold.time:
                self.scope = self.scope.only(space, cover.useful())
            if time < better_than:
                return plan
            most = max(_FEWEST_DOUBTS, len(cover) // _CANDIDATES_PER_DOUBT)
            for placement in doubtful_moves(cover, most):
                judge.microbatch_time(placement)
