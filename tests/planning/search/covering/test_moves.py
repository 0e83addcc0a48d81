"""Moves are the stages of the smallest plans, proven by enumeration."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.search.covering.cover import Cover
from diaulos.planning.search.covering.growth import Limits
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.covering.moves import Moves, best_moves, doubtful_moves
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold
from tests.planning.problems import problems
from tests.planning.search.spaces import EveryPlan, single_options, size_of, spaces

_some = settings(max_examples=80)


def cover_of(space: Space, threshold: Threshold, devices: int) -> Cover:
    limits = Limits(devices=devices, keep_ties=True)
    return Cover.of(space, Scope.all_of(space), threshold, Lessons(), limits)


def a_threshold(every: EveryPlan, data: st.DataObject) -> Threshold:
    times = sorted(set(every.values)) or [Fraction(2**50)]
    return Threshold(time=data.draw(st.sampled_from(times)))


@_some
@given(spaces(problems(most_layers=3).map(single_options)), st.data())
def test_all_moves_of_the_smallest_plans(space: Space, data: st.DataObject) -> None:
    """On the fewest devices and with the fewest stages, exactly the stages of such plans."""
    every = EveryPlan.of(Judge(space=space))
    threshold = a_threshold(every, data)
    plans = every.within(threshold.time)
    smallest = min(map(size_of, plans), default=(space.devices, 0))
    wanted = {
        (stage.pair, stage.degree, stage.in_flight)
        for plan in plans
        if size_of(plan) == smallest
        for stage in plan
    }
    cover = cover_of(space, threshold, data.draw(st.sampled_from((smallest[0], space.devices))))
    found = [
        (stage.pair, stage.degree, stage.in_flight)
        for moves in best_moves(cover)
        for stage in moves.placements()
    ]
    assert set(found) == wanted


@_some
@given(spaces(problems(most_layers=3)), st.data())
def test_moves_join_labels(space: Space, data: st.DataObject) -> None:
    """A move leads from the label of the stages from it on to that of the stages behind it."""
    threshold = a_threshold(EveryPlan.of(Judge(space=space)), data)
    cover = cover_of(space, threshold, space.devices)
    rows = cover.labels.rows
    for moves in best_moves(cover):
        assert (rows.downset[moves.label] == space.pairs.outer[moves.pair]).all()
        assert (rows.downset[moves.rest] == space.pairs.inner[moves.pair]).all()
        assert (rows.total[moves.label] - rows.total[moves.rest]).tolist() == [
            space.degrees[degree].data_parallel for degree in moves.degree
        ]
        for setting, places in moves.in_settings(cover):
            assert (space.setting_of[moves.degree[places]] == setting).all()


@_some
@given(spaces(problems(most_layers=3)), st.data())
def test_doubtful_moves(space: Space, data: st.DataObject) -> None:
    """All stages of the smallest relaxed plans that break the threshold are in doubt."""
    judge = Judge(space=space)
    threshold = a_threshold(EveryPlan.of(judge), data)
    cover = cover_of(space, threshold, space.devices)
    doubtful = doubtful_moves(cover, 10**6)
    stages = [stage for moves in best_moves(cover) for stage in moves.placements()]
    assert set(doubtful) <= set(stages)
    assert {stage for stage in stages if not judge.keeps_to(stage, threshold)} <= set(doubtful)
    assert doubtful_moves(cover, 1) == doubtful[:1]


def test_some_of_the_moves() -> None:
    """Taking some keeps all that is known of each."""
    columns = [np.array([i, 10 + i]) for i in range(5)]
    names = ("label", "rest", "pair", "degree", "in_flight")
    moves = Moves(**dict(zip(names, columns, strict=True)))
    assert len(moves) == 2
    (placement,) = moves.take(np.array([1])).placements()
    assert placement == Placement(pair=12, degree=13, in_flight=14, end=0)
