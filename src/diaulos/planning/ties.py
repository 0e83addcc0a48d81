"""Which of the fastest plans is taken: a rule, so that a problem has one answer.

Fewest devices, then fewest stages, then least memory summed over all devices, then the first in a
canonical order. The rule is additive over stages, so the winner is found on the graph of those
steps (a candidate at a sum s) that lie on some plan with the fewest devices and stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.cover import Candidates, Threshold, candidates, fewest, pack
from diaulos.planning.evaluate import RELATIVE_ROUNDING
from diaulos.planning.increments import Units
from diaulos.planning.placement import Placement, bottleneck, keeps_to, layers_of, memory
from diaulos.planning.space import Space

_Order = tuple[tuple[int, ...], int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A stage on one of the plans that are still in the running."""

    placement: Placement
    total: int
    """Sum of data-parallel degrees from this stage on."""
    devices: int
    outer: int
    inner: int


def break_ties(space: Space, fastest: Sequence[Placement]) -> Sequence[Placement]:
    """The plan that the rule picks among those as fast as a fastest one; input end first."""
    threshold = Threshold(time=bottleneck(space, fastest) * (1 + Fraction(RELATIVE_ROUNDING)))
    devices = sum(
        placement.data_parallel * space.settings[placement.setting].layers.setting.tensor_parallel
        for placement in fastest
    )
    while True:
        chosen = candidates(space, threshold, devices)
        steps = _steps(space, chosen, fewest(space, chosen))
        distinct = dict.fromkeys(step.placement for step in steps)
        confirmed = [keeps_to(space, placement, threshold) for placement in distinct]
        if all(confirmed):
            return _least_memory(space, steps)


def _steps(space: Space, chosen: Candidates, table: Units) -> list[_Step]:
    """All steps of plans with the fewest devices and stages, from the input end."""
    outer, inner = space.pairs.outer[chosen.pair], space.pairs.inner[chosen.pair]
    starts = np.searchsorted(outer, np.arange(len(space.downsets) + 1))
    weight = pack(space, chosen)
    reached = np.zeros(table.shape, np.bool_)
    reached[-1] = table[-1] == table[-1].min()
    steps = []
    for downset in range(len(table) - 1, 0, -1):
        totals = np.flatnonzero(reached[downset])
        for candidate in range(starts[downset], starts[downset + 1]) if len(totals) else ():
            rest, replicas = int(inner[candidate]), int(chosen.data_parallel[candidate])
            within = _within(totals, chosen, candidate)
            needed = table[rest, within - replicas] + weight[candidate]
            for total in within[needed == table[downset, within]].tolist():
                reached[rest, total - replicas] = True
                steps.append(_step(space, chosen, candidate, total))
    return steps


def _within(totals: NDArray[np.int64], chosen: Candidates, candidate: int) -> NDArray[np.int64]:
    within: NDArray[np.int64] = (chosen.first[candidate] <= totals) & (
        totals <= chosen.last[candidate]
    )
    return totals[within]


def _step(space: Space, chosen: Candidates, candidate: int, total: int) -> _Step:
    pair = int(chosen.pair[candidate])
    return _Step(
        placement=Placement.of(chosen, candidate, total),
        total=total,
        devices=int(chosen.data_parallel[candidate] * chosen.tensor_parallel[candidate]),
        outer=int(space.pairs.outer[pair]),
        inner=int(space.pairs.inner[pair]),
    )


def _least_memory(space: Space, steps: Sequence[_Step]) -> Sequence[Placement]:
    """The plan with the least memory, the first in canonical order among equal ones."""
    held = {step.placement: 0 for step in steps}
    if len(steps) > len({step.outer for step in steps}):
        held = {placement: memory(space, placement) for placement in held}
    least = {(0, 0): 0}
    for step in reversed(steps):
        rest = least[step.inner, step.total - step.placement.data_parallel]
        total = rest + step.devices * held[step.placement]
        state = (step.outer, step.total)
        least[state] = min(total, least.get(state, total))
    starts = [step.total for step in steps if step.outer == steps[0].outer]
    most = min(least[steps[0].outer, total] for total in starts)
    return _first_in_order(space, steps, held, least, most + int(most * RELATIVE_ROUNDING))


def _first_in_order(
    space: Space,
    steps: Sequence[_Step],
    held: dict[Placement, int],
    least: dict[tuple[int, int], int],
    most: int,
) -> Sequence[Placement]:
    """Stage by stage from the input end, the first by layers and degrees that keeps to `most`."""
    by_state: dict[tuple[int, int], list[_Step]] = {}
    for step in steps:
        by_state.setdefault((step.outer, step.total), []).append(step)
    downset = steps[0].outer
    # Plans that start alike may differ in s; each has its memory and stages so far.
    alive: dict[int, tuple[int, tuple[Placement, ...]]] = {
        total: (0, ()) for outer, total in by_state if outer == downset
    }
    while downset > 0:
        onward: dict[_Order, dict[int, tuple[int, tuple[Placement, ...]]]] = {}
        inner = {}
        for total, (so_far, placements) in alive.items():
            for step in by_state[downset, total]:
                rest = total - step.placement.data_parallel
                now = so_far + step.devices * held[step.placement]
                if now + least[step.inner, rest] <= most:
                    key = _order_of(space, step)
                    onward.setdefault(key, {})[rest] = (now, (*placements, step.placement))
                    inner[key] = step.inner
        first = min(onward)
        alive, downset = onward[first], inner[first]
    return alive[0][1]


def _order_of(space: Space, step: _Step) -> _Order:
    layers = tuple(layers_of(space, step.placement.pair).tolist())
    return layers, step.placement.data_parallel, step.devices
