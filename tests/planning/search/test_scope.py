"""The scope of a search: at first all stages that are possible, with what plans take at least."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.search.scope import Scope
from diaulos.planning.search.space import Space
from tests.planning.search.spaces import spaces


@settings(max_examples=60)
@given(spaces())
def test_all_possible_stages(space: Space) -> None:
    """The first scope holds the pairs that some setting makes possible, and nothing is needed."""
    scope = Scope.all_of(space)
    wanted = [p for p in range(len(space.pairs)) if any(s.possible[p] for s in space.settings)]
    assert scope.pairs.tolist() == wanted
    last = len(space.downsets) - 1
    assert scope.least_devices.tolist() == scope.least_total.tolist() == [0, *[1] * last]
    assert scope.devices_beyond.tolist() == [*[1] * last, 0]


@settings(max_examples=60)
@given(spaces(), st.data())
def test_pairs_by_downset(space: Space, data: st.DataObject) -> None:
    """The pairs of a range of outer downsets are found, in order."""
    pairs = np.array(sorted(data.draw(st.sets(st.integers(0, len(space.pairs) - 1)))), np.int64)
    nothing = np.zeros(len(space.downsets), np.int64)
    scope = Scope.of(
        space, pairs, least_devices=nothing, least_total=nothing, devices_beyond=nothing
    )
    first = data.draw(st.integers(0, len(space.downsets)))
    end = data.draw(st.integers(first, len(space.downsets)))
    wanted = [pair for pair in pairs.tolist() if first <= space.pairs.outer[pair] < end]
    assert scope.of_downsets(slice(first, end)).tolist() == wanted
