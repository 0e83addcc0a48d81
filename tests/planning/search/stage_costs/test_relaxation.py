"""Relaxed choices of options never promise too little, and surely never too much."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diaulos.models.graph import Layer, LayerGraph
from diaulos.planning.search.stage_costs.costs import LayerCosts, Setting
from diaulos.planning.search.stage_costs.downsets import (
    Downsets,
    Pairs,
    enumerate_downsets,
    enumerate_pairs,
)
from diaulos.planning.search.stage_costs.relaxation import NEVER, Regime, regimes
from diaulos.planning.search.stage_costs.steps import steps_between
from tests.planning.problems import option

MOST = 12
"""In flight."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """Layers that no edge orders, so that any set of them is a stage, and a memory limit."""

    layers: LayerCosts
    limit: float

    @property
    def downsets(self) -> Downsets:
        size = len(self.layers.times)
        return enumerate_downsets(
            LayerGraph(layers=tuple(Layer(id=i, options=(option(),)) for i in range(size)))
        )

    def choices(self, rows: list[int]) -> list[tuple[int, float, float]]:
        """Time beyond the fastest, activations and fixed bytes of all choices for some layers."""
        layers = self.layers
        fastest = int(layers.times[rows].min(axis=1).sum())
        return [
            (
                int(layers.times[rows, some].sum()) - fastest,
                float(layers.activation_bytes[rows, some].sum()),
                float(layers.fixed_bytes[rows, some].sum()),
            )
            for some in map(list, product(range(layers.times.shape[1]), repeat=len(rows)))
        ]


def costs_of(
    times: NDArray[np.int64],
    activation: NDArray[np.float64],
    fixed: NDArray[np.float64],
    limit: float,
) -> LayerCosts:
    """The costs of layers that neither reduce nor send anything."""
    size = len(times)
    none, nothing = np.zeros(0), np.zeros((0, times.shape[1]), np.int64)
    return LayerCosts(
        setting=Setting(
            tensor_parallel=1,
            data_degrees=(1,),
            group=0,
            spans_nodes=False,
            enters_node=False,
            leaves_node=False,
        ),
        options=((),) * size,
        missing=np.zeros(size, np.bool_),
        times=times,
        activation_bytes=activation,
        fixed_bytes=fixed,
        temporary_bytes=np.zeros(times.shape),
        reduction=np.zeros(size, np.int64),
        edge_in=nothing,
        edge_out=nothing,
        edge_in_bytes=none,
        edge_out_bytes=none,
        options_synchronise_alike=True,
        memory_limit_bytes=limit,
        reduction_factors=np.zeros(1, np.int64),
        reduction_constants=np.zeros(1, np.int64),
    )


@st.composite
def instances(draw: st.DrawFn, *, most_layers: int = 4) -> Instance:
    """Few layers with up to three options of small amounts, so that many are alike."""
    shape = (draw(st.integers(1, most_layers)), draw(st.integers(1, 3)))

    def amounts(largest: int) -> NDArray[np.int64]:
        size = shape[0] * shape[1]
        some = draw(st.lists(st.integers(0, largest), min_size=size, max_size=size))
        return np.array(some, np.int64).reshape(shape)

    times = amounts(9) * draw(st.sampled_from((1, 10**6)))
    limit = float(draw(st.sampled_from((0, 3, 10, 25, 60))))
    layers = costs_of(times, amounts(6) / 4, amounts(20) / 3, limit)
    return Instance(layers=layers, limit=limit)


def regime_of(instance: Instance, in_flight: int) -> Regime:
    found = regimes(instance.layers, instance.downsets, MOST)
    return next(some for some in found if some.first <= in_flight <= some.last)


@given(instances())
def test_regimes_cover_all_numbers_in_flight(instance: Instance) -> None:
    """Each number from 1 to the most belongs to exactly one, in ascending order."""
    found = regimes(instance.layers, instance.downsets, MOST)
    covered = [y for some in found for y in range(some.first, some.last + 1)]
    assert covered == list(range(1, MOST + 1))


@given(instances(), st.integers(1, MOST))
def test_tables_equal_direct_sums(instance: Instance, in_flight: int) -> None:
    """A regime holds, for each number in flight, the steps for the memory held with it."""
    layers, downsets = instance.layers, instance.downsets
    found = regime_of(instance, in_flight)
    steps = steps_between(layers.times, layers.activation_bytes * in_flight + layers.fixed_bytes)
    assert found.paid.shape[1] == len(steps.layer) + 1
    for downset, taken in product(range(len(downsets)), range(len(steps.layer) + 1)):
        now = steps.start.copy()
        for layer, target in zip(steps.layer[:taken], steps.target[:taken], strict=True):
            now[layer] = target
        rows = np.flatnonzero(downsets.members[downset])
        paid = layers.times[rows, now[rows]] - layers.times[rows].min(axis=1)
        assert found.paid[downset, taken] == paid.sum()
        for table, amounts in (
            (found.activation_bytes, layers.activation_bytes),
            (found.fixed_bytes, layers.fixed_bytes),
        ):
            assert table[downset, taken] == pytest.approx(amounts[rows, now[rows]].sum())


def stages(instance: Instance) -> tuple[Pairs, list[list[tuple[int, float, float]]]]:
    """All pairs, with the choices for their layers."""
    downsets = instance.downsets
    pairs = enumerate_pairs(downsets)
    inside = downsets.members[pairs.outer] & ~downsets.members[pairs.inner]
    return pairs, [instance.choices(np.flatnonzero(row).tolist()) for row in inside]


@settings(max_examples=200)
@given(instances(most_layers=3), st.integers(0, 15))
def test_most_in_flight(instance: Instance, slack: int) -> None:
    """Never too small; and, where it is to be sure, never too large."""
    pairs, choices = stages(instance)
    budget = slack * max(int(instance.layers.times.max()) // 9, 1)
    slacks = np.full(len(pairs), budget)
    for regime in regimes(instance.layers, instance.downsets, MOST):
        asked = (pairs.outer, pairs.inner, slacks, instance.limit)
        found = regime.most_in_flight(*asked).tolist()
        surely = regime.most_in_flight(*asked, surely=True).tolist()
        for most, sure, some in zip(found, surely, choices, strict=True):
            fitting = [
                y
                for y in range(regime.first, regime.last + 1)
                if any(t <= budget and a * y + f <= instance.limit for t, a, f in some)
            ]
            assert most >= max(fitting, default=0)
            assert regime.last >= most
            if sure >= regime.first:
                assert sure <= most
                # What is sure may be less than what fits by rounding, so the limit is generous.
                limit = instance.limit * (1 + 1e-12)
                assert any(t <= budget and a * sure + f <= limit for t, a, f in some)


@settings(max_examples=200)
@given(instances(most_layers=3), st.integers(1, MOST))
def test_least_paid(instance: Instance, in_flight: int) -> None:
    """Never longer than the fastest choice that fits, nothing where the fastest fits, as the steps
    cut where the memory fits, and never only where nothing fits."""
    pairs, choices = stages(instance)
    regime = regime_of(instance, in_flight)
    numbers = np.full(len(pairs), in_flight)
    found = regime.least_paid(pairs.outer, pairs.inner, numbers, instance.limit)
    held = regime.activation_bytes * in_flight + regime.fixed_bytes
    for pair, (least, some) in enumerate(zip(found.tolist(), choices, strict=True)):
        fitting = [t for t, a, f in some if a * in_flight + f <= instance.limit]
        if not fitting:
            # Amounts are multiples of a twelfth, far from the limit if over it.
            assert least == NEVER
            continue
        assert least <= min(fitting)
        outer, inner = pairs.outer[pair], pairs.inner[pair]
        curve = held[outer] - held[inner], regime.paid[outer] - regime.paid[inner]
        relaxed = np.interp(-instance.limit, -curve[0], curve[1])
        assert least == pytest.approx(relaxed, abs=1 + 1e-6 * abs(relaxed))


@given(instances())
def test_the_most_in_flight_at_all(instance: Instance) -> None:
    """So many fit as fit with the options of least memory."""
    pairs, choices = stages(instance)
    for regime in regimes(instance.layers, instance.downsets, MOST):
        found = regime.most_in_flight_at_all(pairs.outer, pairs.inner, instance.limit)
        assert (found <= regime.last).all()
        for in_flight in range(regime.first, regime.last + 1):
            wanted = [
                min(a * in_flight + f for _, a, f in some) <= instance.limit * (1 + 1e-9) + 1e-9
                for some in choices
            ]
            assert (found >= in_flight).tolist() == wanted


@given(instances())
def test_memory_at_the_start(instance: Instance) -> None:
    """It is that of the fastest options, of least memory among equal ones."""
    pairs, choices = stages(instance)
    for regime in regimes(instance.layers, instance.downsets, MOST):
        numbers = np.full(len(pairs), regime.last)
        found = regime.memory_at_start(pairs.outer, pairs.inner, numbers)
        wanted = [min(a * regime.last + f for t, a, f in some if t == 0) for some in choices]
        assert found == pytest.approx(wanted)
