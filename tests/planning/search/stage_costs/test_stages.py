"""Relaxed costs of all stages at once, against every choice of options of each stage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diaulos.planning.search.stage_costs.relaxation import NEVER
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.stages import StageCosts
from tests.planning.problems import chain, option, problem
from tests.planning.search.spaces import AllChoices, all_choices, space_of, spaces

_some = settings(max_examples=80)


def most_in_flight(space: Space) -> int:
    """Of any stage of any plan."""
    whole = space.problem.pipelining.holds_whole_batch
    return space.problem.microbatches if whole else space.replicas_limit


def a_setting(space: Space, data: st.DataObject) -> tuple[StageCosts, list[AllChoices | None]]:
    """One setting, with the choices of all stages."""
    index = data.draw(st.integers(0, len(space.settings) - 1))
    choices = [all_choices(space, index, pair) for pair in range(len(space.pairs))]
    return space.settings[index], choices


def having_options(choices: list[AllChoices | None]) -> NDArray[np.int64]:
    """The pairs of which every layer has options."""
    return np.flatnonzero([some is not None for some in choices])


@_some
@given(spaces(), st.data())
def test_possible_stages(space: Space, data: st.DataObject) -> None:
    """A stage that fits with the least in flight is possible; one without options is not."""
    costs, choices = a_setting(space, data)
    for pair, some in enumerate(choices):
        if some is None:
            assert not costs.possible[pair]
        else:
            least = 1 if space.flushes or not space.pairs.inner[pair] else 2
            if least <= most_in_flight(space):
                assert costs.possible[pair] or some.least_time(least) is None
            for in_flight in range(1, most_in_flight(space) + 1):
                fits = some.least_time(in_flight) is not None
                assert costs.most_at_all[pair] >= in_flight or not fits


@_some
@given(spaces(), st.data())
def test_least_times_of_stages(space: Space, data: st.DataObject) -> None:
    """No choice is faster; the fastest is as fast, where all options synchronise alike."""
    costs, choices = a_setting(space, data)
    for pair in having_options(choices):
        fastest = min(choices[pair].times)
        assert costs.least[pair] <= fastest
        if costs.layers.options_synchronise_alike:
            assert costs.least[pair] == fastest


@_some
@given(spaces(), st.data())
def test_most_in_flight(space: Space, data: st.DataObject) -> None:
    """Within any time: never too small, and surely never too large."""
    costs, choices = a_setting(space, data)
    pairs = having_options(choices)
    slowest = max((max(choices[p].times) - int(costs.least[p]) for p in pairs), default=0)
    part = data.draw(st.sampled_from((0.0, 0.1, 0.4, 0.7, 1.0)))
    slack = np.full(len(pairs), int(part * slowest))
    ends = space.pairs.outer[pairs], space.pairs.inner[pairs]
    found = costs.most_in_flight(*ends, slack)
    surely = costs.most_in_flight(*ends, slack, surely=True)
    assert (surely <= found).all()
    for place, pair in enumerate(pairs):
        budget = int(costs.least[pair] + slack[place])
        for in_flight in range(1, most_in_flight(space) + 1):
            time = choices[pair].least_time(in_flight)
            if time is not None and time <= budget:
                assert found[place] >= in_flight
            elif in_flight <= surely[place]:
                # What a tolerance of 1e-12 takes for certain fits by that tolerance only.
                generous = choices[pair].least_time(in_flight, rounding=1e-9)
                assert generous is not None
                assert generous <= budget


@_some
@given(spaces(), st.data())
def test_least_times_in_flight(space: Space, data: st.DataObject) -> None:
    """With so many in flight no choice is faster, and where none fits for certain it is never."""
    costs, choices = a_setting(space, data)
    pairs = having_options(choices)
    in_flight = data.draw(st.integers(1, most_in_flight(space)))
    numbers = np.full(len(pairs), in_flight)
    longer = costs.least_times(space.pairs.outer[pairs], space.pairs.inner[pairs], numbers)
    for place, pair in enumerate(pairs):
        time = choices[pair].least_time(in_flight)
        if time is not None:
            assert costs.least[pair] + longer[place] <= time
        elif costs.is_linear and choices[pair].least_time(in_flight, rounding=1e-6) is None:
            assert longer[place] == NEVER


@_some
@given(spaces(), st.data())
def test_memory_of_the_fastest_options(space: Space, data: st.DataObject) -> None:
    """Where it is given, the fastest options fit, and the lightest of them hold it.

    It is a difference of sums over downsets, so it is as precise as the memory of all layers.
    """
    costs, choices = a_setting(space, data)
    pairs = having_options(choices)
    in_flight = data.draw(st.integers(1, most_in_flight(space)))
    numbers = np.full(len(pairs), in_flight)
    ends = space.pairs.outer[pairs], space.pairs.inner[pairs]
    if costs.fastest_are_sure:
        held = costs.memory_of_fastest(*ends, numbers)
        layers = costs.layers
        everything = layers.activation_bytes * in_flight + layers.fixed_bytes
        rounding = 2.0**-50 * float(everything.max(axis=1).sum())
        for place in np.flatnonzero(~np.isnan(held)):
            some = choices[pairs[place]]
            fastest = np.array(some.times) == min(some.times)
            memory = some.activation_bytes * in_flight + some.once_bytes
            assert held[place] == pytest.approx(memory[fastest].min(), abs=rounding)
            assert held[place] <= some.limit_bytes


@_some
@given(spaces(), st.data())
def test_reductions_of_stages(space: Space, data: st.DataObject) -> None:
    """The reduction of a stage is that of its layers."""
    costs, _ = a_setting(space, data)
    inside = space.downsets.members[space.pairs.outer] & ~space.downsets.members[space.pairs.inner]
    wanted = (inside * costs.layers.reduction).sum(axis=1)
    found = costs.reduction[space.pairs.outer] - costs.reduction[space.pairs.inner]
    assert found.tolist() == wanted.tolist()


def test_when_the_fastest_options_are_sure() -> None:
    """Not where some other option is as fast but for rounding, nor where temporaries count."""
    clear = problem(chain([option(seconds=1.0), option("lean", seconds=2.0)]))
    assert space_of(clear).settings[0].fastest_are_sure
    near = problem(chain([option(seconds=1.0), option("lean", seconds=1.0 + 1e-14)]))
    assert not space_of(near).settings[0].fastest_are_sure
