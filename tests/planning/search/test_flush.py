"""The least time of a batch that is filled and drained is that of all plans."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.evaluation.pipelining import GPIPE, ONE_F_ONE_B
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.flush import fastest_flush, fits_at_all_flushed
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.watch import Progress, Watch
from tests.planning.problems import chain, option, problem
from tests.planning.search.spaces import EveryPlan, flush_problems, size_of, space_of, spaces

_many = settings(max_examples=120)
NEARLY = 1 + Fraction(1, 10**12)
flushed = flush_problems(most_layers=3)


def times_of(every: EveryPlan) -> list[Fraction]:
    """Of a batch."""
    return [share + latency for share, latency in zip(every.values, every.latencies, strict=True)]


def stages_of(plan: tuple[Placement, ...]) -> list[tuple[int, int]]:
    """Pairs and degrees; numbers in flight may be larger than they need be."""
    return [(stage.pair, stage.degree) for stage in plan]


@_many
@given(spaces(flushed))
def test_no_plan_is_faster(space: Space) -> None:
    """The plan is the fastest of all; or there is none, and none is found."""
    every = EveryPlan.of(Judge(space=space))
    outcome = fastest_flush(Judge(space=space), Watch())
    assert outcome.is_proven
    assert (outcome.plan is None) == (every.plans == [])
    if outcome.plan is not None:
        least = min(times_of(every))
        assert least <= outcome.bound <= least * NEARLY


@_many
@given(spaces(flushed))
def test_whether_anything_fits(space: Space) -> None:
    """Some plan fits if and only if there is one."""
    every = EveryPlan.of(Judge(space=space))
    assert fits_at_all_flushed(Judge(space=space)) == bool(every.plans)


@_many
@given(spaces(flushed))
def test_a_search_without_time(space: Space) -> None:
    """It has some plan, if there is any, which is not called the fastest, and a bound."""
    every = EveryPlan.of(Judge(space=space))
    outcome = fastest_flush(Judge(space=space), Watch(time_limit_seconds=0.0))
    if every.plans:
        assert stages_of(outcome.plan) in map(stages_of, every.plans)
        assert outcome.bound <= min(times_of(every))
        assert not outcome.is_proven or outcome.bound * NEARLY >= min(times_of(every))


@_many
@given(spaces(flushed), st.integers(1, 4))
def test_an_interrupted_search(space: Space, after: int) -> None:
    """Ctrl-C once some plan is known ends the search with that plan and a bound."""
    reports: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        reports.append(progress)
        if len(reports) == after:
            raise KeyboardInterrupt

    every = EveryPlan.of(Judge(space=space))
    outcome = fastest_flush(Judge(space=space), Watch(report=interrupt))
    assert len(reports) <= after
    assert (outcome.plan is None) == (every.plans == [])
    if outcome.plan is not None:
        least = min(times_of(every))
        assert stages_of(outcome.plan) in map(stages_of, every.plans)
        assert outcome.bound <= least * NEARLY
        if outcome.is_proven:
            assert outcome.bound >= least


def test_an_interruption_before_any_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to answer with, so it is passed on."""
    given_problem = replace(problem(chain([option()])), pipelining=GPIPE)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("diaulos.planning.search.flush.Cover.of", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fastest_flush(Judge(space=space_of(given_problem)), Watch())


def test_of_equally_fast_plans_the_smaller() -> None:
    """Two layers of which one takes no time stand in one stage: a second would gain nothing."""
    graph = chain([option(seconds=4.0)], [option(seconds=0.0)])
    given_problem = problem(graph, devices=4, microbatches=4, data_parallel=False)
    for pipelining in (GPIPE, ONE_F_ONE_B):
        space = space_of(replace(given_problem, pipelining=pipelining))
        outcome = fastest_flush(Judge(space=space), Watch())
        assert outcome.plan is not None
        assert size_of(outcome.plan) == (1, 1)
