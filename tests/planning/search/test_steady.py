"""The least bottleneck is that of all plans, and a search that is stopped knows a bound."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.search.covering.placement import Judge
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.steady import bottleneck, fastest_steady, fits_at_all
from diaulos.planning.search.watch import Progress, Watch
from tests.planning.problems import chain, option, problem, problems
from tests.planning.search.spaces import EveryPlan, size_of, space_of, spaces, steady_problems

_many = settings(max_examples=120)
flat = problems(most_layers=3)


@_many
@given(spaces(flat))
def test_no_plan_is_faster(space: Space) -> None:
    """The plan is the fastest of all, on the fewest devices, then with the fewest stages."""
    every = EveryPlan.of(Judge(space=space))
    judge = Judge(space=space)
    outcome = fastest_steady(judge, Watch())
    assert outcome.is_proven
    if outcome.plan is None:
        assert every.plans == []
        return
    least = min(every.values)
    assert least <= outcome.bound <= least * (1 + Fraction(1, 10**12))
    assert bottleneck(judge, outcome.plan) == outcome.bound
    ties = every.within(least * (1 + Fraction(1, 10**12)))
    devices = sum(space.degrees[stage.degree].devices for stage in outcome.plan)
    assert (devices, len(outcome.plan)) == min(map(size_of, ties))


@_many
@given(spaces(flat))
def test_whether_anything_fits(space: Space) -> None:
    """Some plan fits if and only if there is one."""
    every = EveryPlan.of(Judge(space=space))
    assert fits_at_all(Judge(space=space)) == bool(every.plans)


@_many
@given(spaces(flat))
def test_a_search_without_time(space: Space) -> None:
    """It may have a plan, which is not called the fastest, and its bound holds."""
    every = EveryPlan.of(Judge(space=space))
    outcome = fastest_steady(Judge(space=space), Watch(time_limit_seconds=0.0))
    if every.plans:
        assert not outcome.is_proven
        assert outcome.bound <= min(every.values)
    if outcome.plan is not None:
        assert outcome.plan in every.plans
    else:
        assert not outcome.is_proven or not every.plans


@_many
@given(spaces(steady_problems(most_layers=3)), st.integers(1, 4))
def test_an_interrupted_search(space: Space, after: int) -> None:
    """Ctrl-C once some plan is known leaves that plan, with a bound."""
    reports: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        reports.append(progress)
        if len(reports) == after:
            raise KeyboardInterrupt

    judge = Judge(space=space)
    outcome = fastest_steady(judge, Watch(report=interrupt))
    best = fastest_steady(Judge(space=space), Watch())
    if outcome.plan is not None:
        assert outcome.bound <= best.bound <= bottleneck(judge, outcome.plan)
        assert outcome.is_proven == (len(reports) < after)
    else:
        assert best.plan is None
    bounds = [progress.bound_seconds for progress in reports]
    times = [progress.best_seconds for progress in reports]
    assert bounds == sorted(bounds)
    assert times == sorted(times, reverse=True)


def test_an_interruption_before_any_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to answer with, so it is passed on."""
    judge = Judge(space=space_of(problem(chain([option()]))))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("diaulos.planning.search.steady.Cover.of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fastest_steady(judge, Watch())
