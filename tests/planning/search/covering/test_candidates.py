"""Candidates are all stages of use under a threshold, at the places where they keep to it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.search.covering.candidates import Candidates, candidates, needed_devices
from diaulos.planning.search.covering.labels import Labels, Totals
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold
from tests.planning.problems import chain, option, problem, problems
from tests.planning.search.spaces import EveryPlan, flush_problems, space_of, spaces

_some = settings(max_examples=60)
flat = st.one_of(problems(most_layers=3), flush_problems(most_layers=3))


def unknown_totals(space: Space) -> Totals:
    """That any sum may stand behind a stage."""
    first = Labels(space.line.first_ends() * space.weight)
    return first.totals(len(space.downsets), known=0)


def found_in(space: Space, threshold: Threshold, *, surely: bool = False) -> Candidates:
    """The candidates among all pairs."""
    scope = Scope.all_of(space)
    return candidates(
        space,
        scope,
        threshold,
        Lessons(),
        devices=space.devices,
        downsets=slice(1, len(space.downsets)),
        behind=unknown_totals(space),
        surely=surely,
    )


def some_threshold(every: EveryPlan, data: st.DataObject) -> Threshold:
    """One that some plans keep to, if there are any."""
    times = sorted(set(every.values)) or [Fraction(2**50)]
    return Threshold(time=data.draw(st.sampled_from(times)), strict=data.draw(st.booleans()))


@_some
@given(spaces(flat), st.data())
def test_every_stage_of_every_plan_has_a_candidate(space: Space, data: st.DataObject) -> None:
    """Where it stands; without a flush the smallest degree that does is enough."""
    every = EveryPlan.of(Judge(space=space))
    threshold = some_threshold(every, data)
    found = found_in(space, threshold)
    for plan in every.within(threshold.time, strict=threshold.strict):
        behind = 0
        for stage in reversed(plan):
            degree = space.degrees[stage.degree]
            allowed = found.degree == stage.degree
            if space.smallest_degree_only:
                allowed = space.setting_of[found.degree] == degree.setting
                allowed &= space.replicas_of[found.degree] <= degree.data_parallel
            total = behind + space.replicas_of[found.degree]
            fits = allowed & (found.pair == stage.pair)
            assert (fits & (found.first <= total) & (total <= found.last)).any()
            behind += degree.data_parallel


@_some
@given(spaces(flat), st.data())
def test_sure_candidates_keep_to_the_threshold(space: Space, data: st.DataObject) -> None:
    """At every place that they may have, judged exactly; and relaxed ones are not fewer."""
    judge = Judge(space=space)
    threshold = some_threshold(EveryPlan.of(judge), data)
    sure = found_in(space, threshold, surely=True)
    if space.flushes:
        return  # Budgets are rounded up there, and nothing is taken for certain.
    for place in range(len(sure)):
        for total in range(int(sure.first[place]), int(sure.last[place]) + 1):
            degree = int(sure.degree[place])
            in_flight = space.in_flight(total, degree)
            stage = Placement(pair=int(sure.pair[place]), degree=degree, in_flight=in_flight, end=0)
            assert judge.keeps_to(stage, threshold)


@_some
@given(spaces(), st.data())
def test_candidates_are_in_order(space: Space, data: st.DataObject) -> None:
    """By pair, so by outer downset; none without a place; a degree at most once a pair."""
    time = Fraction(data.draw(st.integers(space.least_time, 8 * space.least_time + 8)))
    found = found_in(space, Threshold(time=time))
    assert (np.diff(found.pair) >= 0).all()
    assert (found.outer == space.pairs.outer[found.pair]).all()
    assert (found.inner == space.pairs.inner[found.pair]).all()
    assert (found.first <= found.last).all()
    assert (found.first >= space.replicas_of[found.degree]).all()
    assert (found.last <= space.replicas_limit).all()
    assert len({*zip(found.pair.tolist(), found.degree.tolist(), strict=True)}) == len(found)
    half = found.part(slice(0, len(found) // 2))
    assert half.pair.tolist() == found.pair[: len(found) // 2].tolist()


def test_a_threshold_that_is_met_exactly() -> None:
    """A stage that takes as long as the threshold is a candidate, but not of a strict one."""
    space = space_of(problem(chain([option(seconds=3.0)]), devices=2, microbatches=2))
    time = Fraction(int(space.settings[0].least[0]), 2)
    assert found_in(space, Threshold(time=time)).degree.tolist() == [1]
    assert found_in(space, Threshold(time=time, strict=True)).degree.tolist() == []
    assert found_in(space, Threshold(time=2 * time)).degree.tolist() == [0]
    assert found_in(space, Threshold(time=2 * time, strict=True)).degree.tolist() == [1]


def test_larger_degrees_only_where_smaller_ones_hold_too_much() -> None:
    """Two replicas hold half as many microbatches each, and so may stand further from the end."""
    layer = [option(seconds=1.0, activations=1.0)]
    given_problem = problem(chain(layer, layer), devices=8, microbatches=8, memory=2.0)
    found = found_in(space_of(given_problem), Threshold(time=Fraction(2**61)))
    first_layer = found.part(slice(0, int((found.pair == 0).sum())))
    places = zip(first_layer.degree, first_layer.first, first_layer.last, strict=True)
    # The last layer alone: at most two in flight, so sums up to twice the degree.
    assert list(places) == [(0, 1, 2), (1, 3, 4), (2, 5, 7)]


def test_only_degrees_that_known_sums_ask_for() -> None:
    """Behind the last layer there is nothing, so that its smallest degree is enough."""
    layer = [option(seconds=1.0, activations=1.0)]
    space = space_of(problem(chain(layer, layer), devices=8, microbatches=8, memory=2.0))
    labels = Labels(space.line.first_ends() * space.weight)
    last_layer = candidates(
        space,
        Scope.all_of(space),
        Threshold(time=Fraction(2**61)),
        Lessons(),
        devices=space.devices,
        downsets=slice(1, 2),
        behind=labels.totals(len(space.downsets), known=1),
    )
    places = zip(last_layer.degree, last_layer.first, last_layer.last, strict=True)
    assert list(places) == [(0, 1, 1)]


def test_with_a_flush_each_degree_is_of_use() -> None:
    """More replicas wait less for filling and draining, however short the stage."""
    given_problem = problem(chain([option(seconds=1.0)]), devices=4, microbatches=4)
    forever = Threshold(time=Fraction(2**200))
    assert found_in(space_of(given_problem), forever).degree.tolist() == [0]
    flushed = space_of(replace(given_problem, pipelining=ONE_F_ONE_B))
    assert found_in(flushed, forever).degree.tolist() == [0, 1, 2]


@given(
    st.lists(st.integers(0, 2**59), max_size=5),
    st.fractions(0, 2**50, max_denominator=8),
    st.booleans(),
)
def test_needed_devices(work: list[int], time: Fraction, strict: bool) -> None:
    """Never more than needed, and fewer only within rounding."""
    found = needed_devices(np.array(work, np.int64), Threshold(time=time, strict=strict)).tolist()
    for amount, devices in zip(work, found, strict=True):
        if time == 0:
            assert devices == 0
        else:
            assert devices <= -(-amount // time)
            assert devices >= (1 - 1e-8) * float(amount / time) - 1e-3


def test_devices_are_left_for_the_other_layers() -> None:
    """Three layers that need a device each leave no stage that works on two devices."""
    layer = [option(seconds=1.0)]
    for devices, wanted in ((2, []), (3, [1, 2, 1, 3, 2, 1])):
        space = space_of(problem(chain(layer, layer, layer), devices=devices, microbatches=6))
        found = found_in(space, Threshold(time=Fraction(int(space.settings[0].least[0]))))
        assert space.replicas_of[found.degree].tolist() == wanted
