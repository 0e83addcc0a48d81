"""The least time of a batch that is filled and drained.

It is the sum of the stages' exposed latencies and the largest of their other shares
(`pipelining`). Under a threshold on the shares, `cover` finds the least latency; so thresholds are
lowered from one plan to the next, each as far as a better plan needs, until none is left.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.search.covering.cover import Cover
from diaulos.planning.search.covering.growth import Limits
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.outcome import Outcome
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold
from diaulos.planning.search.watch import Watch

_FOREVER = Fraction(2**200)
_ROUNDED_UP = 1 + 2.0**-40
_FIRST_STEPS = (1.1, 1.3, 1.6, 2.5, 6.0)
"""Multiples of the bound that are tried for a first plan."""
_Plan = tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A plan with its latency and its largest share, in units."""

    plan: _Plan
    latency: int
    share: Fraction

    @property
    def time(self) -> Fraction:
        """Of a batch."""
        return self.latency + self.share


def fastest_flush(judge: Judge, watch: Watch) -> Outcome:
    """The plan of least batch time.

    Among plans as fast that are met: on the fewest devices, then with the fewest stages.
    """
    if judge.space.problem.pipelining.defers_weight_backward:
        return _fastest_of_all_sums(judge, watch)
    best, is_proven = _fastest(judge, watch, _FOREVER)
    return _outcome(best, judge.space.least_batch_time, is_proven=is_proven)


def _fastest_of_all_sums(judge: Judge, watch: Watch) -> Outcome:
    """The same where what stages hold depends on the sum of all data-parallel degrees.

    Plans are searched under each limit on the sum, as if all reached it. There is a bound: the
    least time if stages held less, as they do where only later ones count.
    """
    relaxed, is_bound = _fastest(judge, watch, _FOREVER)
    if relaxed is None:
        return _outcome(None, judge.space.least_batch_time, is_proven=is_bound)
    if not is_bound:
        some = _some_plan(_limited(judge, relaxed.plan))
        return _outcome(some, judge.space.least_batch_time, is_proven=some is None)
    bound, best = relaxed.time, None
    for limited in _limited(judge, relaxed.plan):
        try:
            most = _FOREVER if best is None else best.time
            found, is_proven = _fastest(limited, watch, most)
        except KeyboardInterrupt:
            if best is None:
                raise
            return _outcome(best, bound, is_proven=False)
        if found is not None and (best is None or found.time < best.time):
            best = found
        if best is not None and best.time <= bound:
            break
        if not is_proven:
            return _outcome(best, bound, is_proven=False)
    return _outcome(best, bound, is_proven=True)


def _limited(judge: Judge, plan: _Plan) -> Iterator[Judge]:
    """Judges for each limit on the sum of degrees: that of a plan, then from the largest down."""
    space = judge.space
    first = sum(space.degrees[stage.degree].data_parallel for stage in plan)
    yield replace(judge, space=space.limited(first))
    for limited in space.all_limited():
        if limited.all_replicas != first:
            yield replace(judge, space=limited)


def _fastest(judge: Judge, watch: Watch, most: Fraction) -> tuple[Found | None, bool]:
    """The plan of least batch time, where one takes at most `most`; and whether it is proven."""
    best: Found | None = None
    bound, is_proven = judge.space.least_batch_time, True
    try:
        for found in _better_and_better(judge, most):
            best = _first(found, best)
            watch.tell(
                bound_seconds=judge.space.batch_seconds(bound),
                best_seconds=judge.space.batch_seconds(best.time),
            )
            if watch.is_over:
                is_proven = False
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        is_proven = False
    return best, is_proven


def _outcome(best: Found | None, bound: Fraction, *, is_proven: bool) -> Outcome:
    """What is known; a proven plan is its own bound."""
    if best is None:
        return Outcome(plan=None, bound=bound, is_proven=is_proven)
    return Outcome(plan=best.plan, bound=best.time if is_proven else bound, is_proven=is_proven)


def fits_at_all_flushed(judge: Judge) -> bool:
    """Whether some plan keeps to the memory of its devices."""
    spaces = judge.space.all_limited()
    return _some_plan(replace(judge, space=space) for space in spaces) is not None


def _some_plan(judges: Iterable[Judge]) -> Found | None:
    """The first plan of the first of some spaces that has one."""
    for judge in judges:
        for found in _better_and_better(judge, _FOREVER):
            return found
    return None


def _better_and_better(judge: Judge, most: Fraction) -> Iterator[Found]:
    """Plans of ever smaller shares, until none can be better than the best so far.

    `most` is the most that a batch may take.
    """
    space = judge.space
    limits = Limits(devices=space.devices, latency=float(most) * _ROUNDED_UP)
    least = most
    first = _quick(judge, limits) if most >= _FOREVER else None
    if first is not None:
        yield first
        least = min(least, first.time)
    judge.lessons.refused.clear()
    threshold = Threshold(time=least - int(space.least_latency[-1]))
    while threshold.time > 0:
        found = _least_latency(judge, threshold, _limited_latency(space, limits, threshold, least))
        if found is None:
            return
        yield found
        least = min(least, found.time)
        # A better plan has at least this latency; its share must make up for it.
        threshold = Threshold(time=min(found.share, least - found.latency), strict=True)


def _quick(judge: Judge, limits: Limits) -> Found | None:
    """Some good plan: of least latency among those whose shares are near the bound."""
    for step in _FIRST_STEPS:
        judge.lessons.refused.clear()
        threshold = Threshold(time=Fraction(int(judge.space.least_batch_time * step)))
        found = _least_latency(judge, threshold, limits)
        if found is not None:
            return found
    return None


def _limited_latency(space: Space, limits: Limits, threshold: Threshold, least: Fraction) -> Limits:
    """The limits with the most latency that a plan better than the best so far can have.

    The slowest stage takes its latency and its share, at least what no plan can be faster than;
    so all other latencies are within what the best plan takes beyond that. Under a threshold h on
    the shares, m*U - L + R, the latency of one stage is at most h/(m - 1).
    """
    microbatches = space.problem.microbatches
    fewest = microbatches // max(degree.data_parallel for degree in space.degrees)
    if fewest <= 1:
        return limits
    longest = threshold.time / (fewest - 1)
    most = float(least - space.least_batch_time + longest) * _ROUNDED_UP
    return replace(limits, latency=min(limits.latency, most))


def _first(found: Found, best: Found | None) -> Found:
    return found if best is None or _precedes(found, best) else best


def _precedes(one: Found, other: Found) -> bool:
    if abs(one.time - other.time) > RELATIVE_ROUNDING * other.time:
        return one.time < other.time
    return (one.plan[0].end, len(one.plan)) < (other.plan[0].end, len(other.plan))


def _least_latency(judge: Judge, threshold: Threshold, limits: Limits) -> Found | None:
    """The plan of least latency under a threshold; None where none keeps to it.

    Stages are judged by lower bounds of their times; those that a plan would be made of are made
    exact, until a plan holds.
    """
    space = judge.space
    scope = Scope.all_of(space)
    while True:
        cover = Cover.of(space, scope, threshold, judge.lessons, limits)
        label = _first_of_least_latency(cover)
        if label is None:
            return None
        plan = cover.placements(label)
        broken = [stage for stage in plan if not judge.keeps_to(stage, threshold)]
        found = _exact(judge, plan)
        if found is not None and found.latency <= cover.labels.rows.latency[label] and not broken:
            return found
        for stage in broken:
            # Budgets of time are rounded up, and thresholds fall from one plan to the next.
            judge.lessons.refuse(stage.pair, stage.degree, stage.in_flight)


def _first_of_least_latency(cover: Cover) -> int | None:
    complete, rows = cover.complete(), cover.labels.rows
    if not len(complete):
        return None
    order = np.lexsort((rows.packed[complete], rows.latency[complete]))
    return int(complete[order[0]])


def _exact(judge: Judge, plan: _Plan) -> Found | None:
    latencies = [judge.latency(stage) for stage in plan]
    shares = [judge.value(stage) for stage in plan]
    fitting = [latency for latency in latencies if latency is not None]
    if len(fitting) < len(plan):
        return None
    return Found(plan, sum(fitting), max(share for share in shares if share is not None))
