"""Steps to options of less memory are the linear relaxation of choosing them."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diaulos.planning.search.covering.knapsack import choose_options
from diaulos.planning.search.stage_costs.steps import Steps, steps_between

Instance = tuple[NDArray[np.int64], NDArray[np.int64]]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Times and memory of up to 6 layers with up to 4 options."""
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 4)))
    size = shape[0] * shape[1]
    amounts = st.lists(st.integers(0, draw(st.sampled_from((3, 20)))), min_size=size, max_size=size)
    times = np.array(draw(amounts), np.int64).reshape(shape)
    return times, np.array(draw(amounts), np.int64).reshape(shape)


def sums(steps: Steps, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum over all layers after each number of steps."""
    change = amounts[steps.layer, steps.target] - amounts[steps.layer, steps.source]
    start = amounts[np.arange(len(amounts)), steps.start].sum()
    return np.concatenate([[start], start + np.cumsum(change)])


@settings(max_examples=200)
@given(instances(), st.data())
def test_steps_bound_the_time(instance: Instance, data: st.DataObject) -> None:
    """Steps until the memory fits are a choice that fits; with the last one cut, a bound."""
    times, memory = instance
    least, most = int(memory.min(axis=1).sum()), int(memory.max(axis=1).sum())
    limit = data.draw(st.integers(least, most))
    best = choose_options(times, memory, limit)
    steps = steps_between(times, memory)
    held, paid = sums(steps, memory), sums(steps, times)
    enough = int(np.argmax(held <= limit))
    assert best is not None
    assert held[enough] <= limit
    assert best.time <= paid[enough]
    assert np.interp(-limit, -held, paid) <= best.time * (1 + 1e-9)


@given(instances())
def test_steps_lead_from_the_fastest_options_to_the_smallest(instance: Instance) -> None:
    """Each step starts where the layer is; none saves nothing; ratios ascend; the end is least."""
    times, memory = instance
    steps = steps_between(times, memory)
    now = steps.start.copy()
    assert (times[np.arange(len(times)), now] == times.min(axis=1)).all()
    ratios = []
    for layer, source, target in zip(steps.layer, steps.source, steps.target, strict=True):
        assert now[layer] == source
        saved = memory[layer, source] - memory[layer, target]
        assert saved > 0
        ratios.append((times[layer, target] - times[layer, source]) / saved)
        now[layer] = target
    assert (memory[np.arange(len(times)), now] == memory.min(axis=1)).all()
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(ratios))


def test_steps_ascend_in_price() -> None:
    """Steps that save more for less time come first, and each layer's own stay in order."""
    times = np.array([[1, 4, 9], [2, 3, 3]])
    memory = np.array([[9, 3, 0], [8, 7, 1]])
    steps = steps_between(times, memory)
    assert steps.start.tolist() == [0, 0]
    moves = zip(steps.layer, steps.source, steps.target, strict=True)
    assert list(moves) == [(1, 0, 2), (0, 0, 1), (0, 1, 2)]


def test_ratios_equal_within_rounding_keep_the_order_of_layers() -> None:
    """Layers whose options are alike but for rounding take their steps in order."""
    times = np.array([[0, 3]] * 3)
    memory = np.array([[0.3, 0.0], [0.1 + 0.2, 0.0], [0.3, 0.0]])
    assert memory[0, 0] != memory[1, 0]
    assert steps_between(times, memory).layer.tolist() == [0, 1, 2]


def test_sameness() -> None:
    """Steps are the same if they start alike and are taken in one order."""
    times, memory = np.array([[0, 3], [0, 1]]), np.array([[4, 0], [1, 0]])
    steps = steps_between(times, memory)
    assert steps.same_as(steps_between(2 * times, 3 * memory))
    assert not steps.same_as(steps_between(times, np.array([[2, 0], [1, 0]])))
    assert not steps.same_as(steps_between(times[:, ::-1], memory[:, ::-1]))
    assert not steps.same_as(steps_between(times[:1], memory[:1]))
