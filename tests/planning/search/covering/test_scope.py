"""The scope of a search: at first all stages that are possible, with what plans take at least."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.space import Space
from tests.planning.search.spaces import spaces


@settings(max_examples=60)
@given(spaces())
def test_all_possible_stages(space: Space) -> None:
    """The first scope holds what each setting makes possible, and nothing is needed."""
    scope = Scope.all_of(space)
    for pairs, costs in zip(scope.pairs, space.settings, strict=True):
        assert pairs.tolist() == [p for p in range(len(space.pairs)) if costs.possible[p]]
    last = len(space.downsets) - 1
    assert scope.least_devices.tolist() == scope.least_total.tolist() == [0, *[1] * last]
    assert scope.devices_beyond.tolist() == [*[1] * last, 0]


@settings(max_examples=60)
@given(spaces(), st.data())
def test_pairs_by_downset(space: Space, data: st.DataObject) -> None:
    """The pairs of a range of outer downsets are found by setting, in order, and counted."""
    some = st.sets(st.integers(0, len(space.pairs) - 1)).map(sorted)
    pairs = [np.array(data.draw(some), np.int64) for _ in space.settings]
    nothing = np.zeros(len(space.downsets), np.int64)
    scope = Scope.of(
        space, pairs, least_devices=nothing, least_total=nothing, devices_beyond=nothing
    )
    first = data.draw(st.integers(0, len(space.downsets)))
    end = data.draw(st.integers(first, len(space.downsets)))
    wanted = [
        [pair for pair in some.tolist() if first <= space.pairs.outer[pair] < end] for some in pairs
    ]
    found = [scope.of_downsets(i, slice(first, end)).tolist() for i in range(len(pairs))]
    assert found == wanted
    assert scope.counts()[end] - scope.counts()[first] == sum(map(len, wanted))
