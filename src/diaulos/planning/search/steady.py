"""The least bottleneck: a search by halving, for schedules without a flush."""

from dataclasses import dataclass
from fractions import Fraction

from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.search.covering.cover import Cover
from diaulos.planning.search.covering.growth import Limits
from diaulos.planning.search.covering.moves import doubtful_moves
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.outcome import Outcome
from diaulos.planning.search.stage_costs.threshold import Threshold
from diaulos.planning.search.ties import break_ties
from diaulos.planning.search.watch import Watch

_FIRST_STEPS = (1.1, 1.6, 6.0, 36.0)
"""Multiples of the bound that are tried before any plan is known."""
_MISSES_BEFORE_PROOF = 2
_FEWEST_DOUBTS = 10
_CANDIDATES_PER_DOUBT = 500
"""To make a stage exact takes as long as to judge so many candidates, about."""
_FOREVER = Fraction(2**62)
_TIE = 1 + 2 * Fraction(RELATIVE_ROUNDING)
_Plan = tuple[Placement, ...]


def fastest_steady(judge: Judge, watch: Watch) -> Outcome:
    """The plan that the rule of `exact` picks."""
    search = _Search(judge=judge, watch=watch)
    try:
        search.find_first()
        search.find_fastest()
    except KeyboardInterrupt:
        if search.plan is None:
            raise
    if search.plan is None or not search.is_proven:
        return search.outcome()
    time = bottleneck(judge, search.plan)
    search.plan = tuple(break_ties(judge, search.scope, time, search.plan[0].end))
    return search.outcome()


def fits_at_all(judge: Judge) -> bool:
    """Whether some plan keeps to the memory of its devices."""
    search = _Search(judge=judge, watch=Watch())
    return search.keeping_to(Threshold(time=_FOREVER), better_than=_FOREVER) is not None


def bottleneck(judge: Judge, plan: _Plan) -> Fraction:
    """The time of the slowest stage, in units; forever where one does not fit."""
    values = [judge.value(placement) for placement in plan]
    return max(_FOREVER if value is None else value for value in values)


@dataclass(kw_only=True)
class _Search:
    """What is known so far: a bound, the best plan, and which stages can still matter."""

    judge: Judge
    watch: Watch
    bound: int = 0
    plan: _Plan | None = None
    is_proven: bool = False

    def __post_init__(self) -> None:
        self.scope = Scope.all_of(self.judge.space)
        self.bound = self.judge.space.least_time

    def outcome(self) -> Outcome:
        """What the search came to."""
        bound = Fraction(self.bound)
        if self.plan is not None and self.is_proven:
            bound = bottleneck(self.judge, self.plan)
        return Outcome(plan=self.plan, bound=bound, is_proven=self.is_proven)

    def find_first(self) -> None:
        """Look for some plan near the optimum."""
        least = self.bound
        for step in _FIRST_STEPS:
            time = min(Fraction(int(least * step)), _FOREVER)
            self.plan = self.keeping_to(Threshold(time=time), better_than=_FOREVER)
            if self.plan is not None or self.watch.is_over:
                break
            self.bound = int(time)
        if self.plan is None:
            self.plan = self.keeping_to(Threshold(time=_FOREVER), better_than=_FOREVER)
            self.is_proven = self.plan is None

    def find_fastest(self) -> None:
        """Halve the interval between the bound and the plan, until none is better."""
        misses = 0
        while self.plan is not None and not self.watch.is_over:
            time = bottleneck(self.judge, self.plan)
            self._tell(time)
            guess = self._guess(time)
            proves = misses >= _MISSES_BEFORE_PROOF or guess >= time or time <= self.bound
            threshold = Threshold(time=time, strict=True) if proves else Threshold(time=guess)
            better = self.keeping_to(threshold, better_than=time)
            if better is not None:
                self.plan, misses = better, 0
            elif proves:
                self.is_proven = True
                return
            else:
                self.bound, misses = int(guess), misses + 1

    def _guess(self, time: Fraction) -> Fraction:
        """Where the optimum may be: faster by the devices left over, or half way to the bound."""
        assert self.plan is not None
        devices = self.judge.space.devices
        with_all_devices = int(time * self.plan[0].end / devices)
        half_way = int(self.bound + time) // 2
        return Fraction(with_all_devices if self.bound < with_all_devices < time else half_way)

    def _tell(self, time: Fraction) -> None:
        space = self.judge.space
        self.watch.tell(
            bound_seconds=space.batch_seconds(Fraction(self.bound)),
            best_seconds=space.batch_seconds(time),
        )

    def keeping_to(self, threshold: Threshold, *, better_than: Fraction) -> _Plan | None:
        """A plan that keeps to a threshold, or at least is better than some time.

        None where no plan keeps to the threshold. Stages are judged by lower bounds of their
        times, then by upper ones; if the answers differ, those that a plan would be made of are
        made exact, until a plan holds.
        """
        judge = self.judge
        while True:
            cover = self._cover(threshold, surely=False)
            plan = cover.plan()
            if plan is None:
                return None
            time = bottleneck(judge, plan)
            if time > threshold.time or (threshold.strict and time == threshold.time):
                surely = self._cover(threshold, surely=True).plan()
                if surely is not None:
                    plan, time = surely, bottleneck(judge, surely)
            if time * _TIE <= threshold.time:
                self.scope = cover.scope()
            if time < better_than:
                return plan
            most = max(_FEWEST_DOUBTS, len(cover) // _CANDIDATES_PER_DOUBT)
            for placement in doubtful_moves(cover, most):
                judge.microbatch_time(placement)

    def _cover(self, threshold: Threshold, *, surely: bool) -> Cover:
        space = self.judge.space
        limits = Limits(devices=space.devices, surely=surely)
        return Cover.of(space, self.scope, threshold, self.judge.lessons, limits)
