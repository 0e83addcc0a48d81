"""The least time of a batch that is filled and drained.

It is the sum of the stages' exposed latencies and the largest of their other shares
(`pipelining`). Under a threshold on the shares, `cover` finds the least latency; so thresholds are
lowered from one plan to the next, each as far as a better plan needs, until none is left.
"""

import heapq
from collections.abc import Iterator
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
_CUT_BELOW = 8
"""The part of a range below the sum of a plan that is kept with the sums above it: they hold nearly
as much, and plans of nearly as large sums are nearly as fast."""
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

    Of the plans whose sums lie in some range the fastest is found as if stages held no more than
    with the least sum, or with the degrees from them on. If it is as fast with what they really
    hold, it is the fastest of the range; else the range is cut there or somewhat below (branch and
    bound).
    """
    best: Found | None = None
    ranges = [(judge.space.least_batch_time, 0, judge.space.problem.replicas_limit)]
    while ranges:
        bound, least, most = heapq.heappop(ranges)
        if best is not None and bound >= best.time:
            break
        limited = replace(judge, space=judge.space.limited(least, most))
        try:
            at_most = _FOREVER if best is None else best.time
            relaxed, is_proven = _fastest(limited, watch, at_most)
        except KeyboardInterrupt:
            if best is None:
                raise
            return _outcome(best, bound, is_proven=False)
        if relaxed is None:
            continue
        found = _holding_all(judge, relaxed.plan)
        if found is not None and (best is None or _precedes(found, best)):
            best = found
        if not is_proven and best is not None:
            return _outcome(best, bound, is_proven=False)
        if found is None or found.time > relaxed.time:
            bound = max(bound, relaxed.time) if is_proven else bound
            total = _total(judge, relaxed.plan)
            cut = total - (total - least) // _CUT_BELOW
            heapq.heappush(ranges, (bound, least, cut - 1))
            heapq.heappush(ranges, (bound, cut, most))
    return _outcome(best, judge.space.least_batch_time, is_proven=True)


def _total(judge: Judge, plan: _Plan) -> int:
    """The sum of all data-parallel degrees."""
    return sum(judge.space.degrees[stage.degree].data_parallel for stage in plan)


def _holding_all(judge: Judge, plan: _Plan) -> Found | None:
    """A plan with what its stages hold where all degrees count; None where that does not fit."""
    total = _total(judge, plan)
    space = judge.space.limited(total, total)
    stages = tuple(replace(stage, in_flight=space.in_flight(total, stage.degree)) for stage in plan)
    return _exact(replace(judge, space=space), stages)


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
    if judge.space.problem.pipelining.defers_weight_backward:
        return _fastest_of_all_sums(judge, Watch(time_limit_seconds=0.0)).plan is not None
    return any(True for _ in _better_and_better(judge, _FOREVER))


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
