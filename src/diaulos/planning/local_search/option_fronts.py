"""The ways to choose the options of a stage that fit and that no other way beats in everything.

What is fastest in all counts most, but where forward and backward, or what can wait and what
cannot, differ between options, the schedule decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.models.graph import Option
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.search.covering.placement import Judge, Placement, buffer_bytes, layers_of

Measures = Callable[[Option], tuple[float, ...]]
"""What an option costs, in several ways that add up over the layers of a stage."""

_MOST_CHOICES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Front:
    """Choices for the first layers of a stage, one a row."""

    costs: NDArray[np.float64]
    """Measures, then memory, then the largest temporary."""
    options: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> "_Front":
        return _Front(costs=self.costs[rows], options=self.options[rows])


def undominated_options(
    judge: Judge, placement: Placement, measures: Measures
) -> list[tuple[int, ...]] | None:
    """Of each layer of a stage the option, by index: the choices, that of the least sum first.

    None of them has less of one measure than another without having more of some other. None
    where there are too many to look at all.
    """
    space = judge.space
    setting = space.degrees[placement.degree].setting
    layers, rows = space.settings[setting].layers, layers_of(space, placement.pair)
    limit = layers.memory_limit_bytes - buffer_bytes(space, setting, rows)
    room = limit * (1 + RELATIVE_ROUNDING)
    count = len(measures(layers.options[rows[0]][0]))
    front = _Front(costs=np.zeros((1, count + 2)), options=np.zeros((1, 0), np.int64))
    for row in rows:
        memory = layers.activation_bytes[row] * placement.in_flight + layers.fixed_bytes[row]
        costs = [
            (*measures(option), memory[index], layers.temporary_bytes[row][index])
            for index, option in enumerate(layers.options[row])
        ]
        front = _extended(front, np.array(costs))
        front = front.take(np.flatnonzero(front.costs[:, -2:].sum(axis=1) <= room))
        front = front.take(_undominated(front.costs, count))
        if len(front.costs) > _MOST_CHOICES:
            return None
    final = _undominated(front.costs[:, :count], count)
    return [tuple(options) for options in front.options[final].tolist()]


def _extended(front: _Front, costs: NDArray[np.float64]) -> _Front:
    """Every choice with every option of one layer more."""
    old, new = (index.ravel() for index in np.indices((len(front.costs), len(costs))))
    total = front.costs[old] + costs[new]
    total[:, -1] = np.maximum(front.costs[old, -1], costs[new, -1])
    return _Front(costs=total, options=np.column_stack((front.options[old], new)))


def _undominated(costs: NDArray[np.float64], measures: int) -> NDArray[np.int64]:
    """Rows that no other row beats, by the sums of their measures; of equal rows the first."""
    sums = costs[:, :measures].sum(axis=1), costs[:, measures:].sum(axis=1)
    kept: list[int] = []
    for row in np.lexsort((*reversed(sums),)).tolist():
        if not (costs[kept] <= costs[row]).all(axis=1).any():
            kept.append(row)
    return np.array(kept, np.int64)
