"""What was learned about stages changes what relaxed costs say of them, and nothing else."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diaulos.planning.search.covering.lessons import Lessons

Known = dict[tuple[int, int], int]
known = st.dictionaries(st.tuples(st.integers(0, 4), st.integers(1, 4)), st.integers(0, 9))
stages = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 5)), max_size=12)


def lessons_of(some: Known) -> Lessons:
    lessons = Lessons()
    for (pair, in_flight), longer in some.items():
        lessons.add(3, pair, in_flight, longer)
    return lessons


@given(known, stages)
def test_numbers_in_flight_that_are_too_slow_are_taken_back(some: Known, asked: list) -> None:
    """A stage has fewer in flight than any number with which it is known to exceed its slack."""
    asked = sorted(asked)
    pairs, slack, within = np.array(asked, np.int64).reshape(-1, 3).T
    wanted = [
        min([w, *(y - 1 for (c, y), longer in some.items() if c == pair and longer > s)])
        for pair, s, w in asked
    ]
    found = within.copy()
    lessons_of(some).lower(3, pairs, slack, found)
    assert found.tolist() == wanted
    untouched = within.copy()
    lessons_of(some).lower(1, pairs, slack, untouched)
    assert untouched.tolist() == within.tolist()


@given(known, stages)
def test_exact_times_replace_relaxed_ones(some: Known, asked: list) -> None:
    """A stage whose pair and number in flight are known takes what is known."""
    pairs, longer, in_flight = np.array(asked, np.int64).reshape(-1, 3).T
    wanted = [some.get((pair, y), relaxed) for pair, relaxed, y in asked]
    found = longer.copy()
    lessons_of(some).replace(3, pairs, in_flight, found)
    assert found.tolist() == wanted
    untouched = longer.copy()
    lessons_of(some).replace(0, pairs, in_flight, untouched)
    assert untouched.tolist() == longer.tolist()


@given(st.sets(st.tuples(*[st.integers(0, 2)] * 3)), st.lists(st.tuples(*[st.integers(0, 2)] * 3)))
def test_refused_stages(refused: set, asked: list) -> None:
    """Exactly the stages that were refused are, with their pair, degree and number in flight."""
    lessons = Lessons()
    for stage in refused:
        lessons.refuse(*stage)
    columns = np.array(asked, np.int64).reshape(-1, 3).T
    assert lessons.are_refused(*columns).tolist() == [stage in refused for stage in asked]
