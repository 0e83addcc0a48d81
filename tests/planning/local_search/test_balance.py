"""Balanced cuts: the slowest stage is as fast as any cuts make it."""

from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.local_search.balance import Balance
from diaulos.planning.local_search.outlines import Degrees, Outline, Outlines
from tests.planning.problems import chain, option, problem


def balance_of(seconds: list[float], **figures: float) -> Balance:
    layers = chain(*[[option(seconds=some, activations=1.0)] for some in seconds])
    given_problem = replace(
        problem(layers, devices=12, microbatches=12, **figures), pipelining=ONE_F_ONE_B
    )
    outlines = Outlines.of(given_problem)
    assert outlines is not None
    return Balance(outlines=outlines)


def slowest(seconds: list[float], outline: Outline) -> float:
    """Per sample; downset i of a chain are its last i layers."""
    size = len(seconds)
    return max(
        sum(seconds[size - outer : size - inner]) / degrees.data_parallel
        for (outer, inner), degrees in zip(pairwise(outline.cuts), outline.degrees, strict=True)
    )


@given(
    st.lists(st.integers(1, 9).map(float), min_size=3, max_size=6),
    st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=3),
)
def test_no_cuts_are_better(seconds: list[float], replicas: list[int]) -> None:
    """Against all cuts of a chain."""
    degrees = tuple(Degrees(d, 1) for d in replicas)
    found = balance_of(seconds).outline(degrees)
    size = len(seconds)
    all_cuts = combinations(range(size - 1, 0, -1), len(degrees) - 1)
    best = min(slowest(seconds, Outline((size, *cuts, 0), degrees)) for cuts in all_cuts)
    assert slowest(seconds, found) == pytest.approx(best)


def test_stages_that_do_not_fit_are_not_taken() -> None:
    """The first stage has two microbatches in flight, so one layer is all it can hold."""
    found = balance_of([1.0, 1.0, 1.0], memory=2.0).outline((Degrees(1, 1),) * 2)
    assert found.cuts == (3, 2, 0)


def test_there_may_be_none() -> None:
    """Where there are more stages than layers, too few devices, or too little memory."""
    balance = balance_of([1.0, 1.0], memory=2.0)
    assert balance.outline((Degrees(1, 1),) * 3) is None
    assert balance.outline((Degrees(12, 1), Degrees(1, 1))) is None
    assert balance_of([1.0, 1.0], memory=1.5).outline((Degrees(1, 1),) * 2) is None


def test_even_outlines_have_equal_degrees() -> None:
    """One for each degree and depth that the devices allow."""
    found = list(balance_of([1.0] * 3).even())
    assert all(len(set(outline.degrees)) == 1 for outline in found)
    shapes = {(outline.degrees[0].data_parallel, len(outline.degrees)) for outline in found}
    wanted = {(d, depth) for d in (1, 2, 3, 4, 6, 12) for depth in (1, 2, 3) if d * depth <= 12}
    assert shapes == wanted
