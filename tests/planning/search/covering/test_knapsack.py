"""Choosing options within a memory limit, against trying all choices."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diaulos.planning.search.covering.knapsack import choose_options

Instance = tuple[NDArray[np.int64], NDArray[np.int64], int]


def every_choice(times, memory):
    """Time, memory and options of all choices, in the order of the source."""
    rows = range(len(times))
    return [
        (
            sum(int(times[i, o]) for i, o in zip(rows, options, strict=True)),
            sum(int(memory[i, o]) for i, o in zip(rows, options, strict=True)),
            options,
        )
        for options in product(range(times.shape[1]), repeat=len(times))
    ]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Times and memory of up to 7 layers with up to 3 options, and a limit between the extremes."""
    shape = (draw(st.integers(1, 7)), draw(st.integers(1, 3)))
    largest = draw(st.sampled_from((3, 20, 10**15)))
    amounts = st.lists(
        st.integers(0, largest), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]
    )
    times = np.array(draw(amounts), np.int64).reshape(shape)
    memory = np.array(draw(amounts), np.int64).reshape(shape)
    least, most = int(memory.min(axis=1).sum()), int(memory.max(axis=1).sum())
    return times, memory, draw(st.integers(max(least - 1, 0), most))


@settings(max_examples=300)
@given(instances())
def test_equals_the_best_of_all_choices(instance: Instance) -> None:
    """Least time, then least memory, then the first in the source; None where nothing fits."""
    times, memory, limit = instance
    choices = every_choice(times, memory)
    fitting = [choice for choice in choices if choice[1] <= limit]
    found = choose_options(times, memory, limit)
    if not fitting:
        assert found is None
    else:
        assert found is not None
        best = min(fitting)
        # Larger amounts may be equal within rounding without being equal.
        if max(best[:2]) < 10**11:
            assert (found.time, found.memory, found.options) == best
        assert found.time <= best[0] * (1 + 1e-12)
        assert found.memory <= limit


def test_times_equal_in_the_whole_stage_are_ties() -> None:
    """A difference that the rest of the stage's time drowns does not cost memory."""
    times, memory = np.array([[1000, 1001]]), np.array([[50, 20]])
    assert choose_options(times, memory, 60) is not None
    alone = choose_options(times, memory, 60)
    drowned = choose_options(times, memory, 60, other_time=10**16)
    assert alone is not None
    assert drowned is not None
    assert (alone.options, drowned.options) == ((0,), (1,))


@pytest.mark.parametrize("layers", [2, 3, 20])
def test_amounts_far_over_the_limit(layers: int) -> None:
    """Options of which two hold more than 64 bits say are merely too large."""
    times, memory = np.array([[0, 1]] * layers), np.array([[2**62 + 1, 5]] * layers)
    found = choose_options(times, memory, 2**61)
    assert found is not None
    assert found.options == (1,) * layers
    assert choose_options(times[:, :1], memory[:, :1], 2**61) is None


@pytest.mark.parametrize("seed", range(4))
def test_many_layers(seed: int) -> None:
    """With 60 layers the time equals that of a table over all amounts of memory."""
    generator = np.random.default_rng(seed)
    times, memory = generator.integers(0, 50, (2, 60, 3))
    limit = int((memory.min(axis=1).sum() + memory.max(axis=1).sum()) // 3)
    table = np.zeros(limit + 1)
    for layer in range(60):
        options = []
        for time, held in zip(times[layer].tolist(), memory[layer].tolist(), strict=True):
            shifted = np.full(limit + 1, np.inf)
            shifted[held:] = table[: limit + 1 - held] + time
            options.append(shifted)
        table = np.min(options, axis=0)
    found = choose_options(times, memory, limit)
    assert found is not None
    assert found.time == table[limit]
    assert found.memory <= limit
