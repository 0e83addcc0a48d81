"""The exact choice of one option for each layer of a stage within its memory limit.

A multiple-choice knapsack: least time first, among equal times least memory, among those the
options that stand first in the source. Solved by dynamic programming over the undominated
(time, memory) sums of the last layers, pruned by a Lagrangian bound: with a price on memory, no
choice is cheaper than the sum of each layer's cheapest option at that price.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.search.stage_costs.fixed_point import Units
from diaulos.planning.search.stage_costs.steps import steps_between

_FLOAT_ROUNDING = 2.0**-50
_FEW_CHOICES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One option for each layer, by index, with the sums of its times and memory."""

    options: tuple[int, ...]
    time: int
    memory: int


@dataclass(frozen=True, slots=True)
class _Frontier:
    """Undominated sums of the layers from some layer on: memory ascends, time descends."""

    time: Units
    memory: Units


def choose_options(
    times: Units, memory: Units, limit: int, *, other_time: int = 0
) -> Choice | None:
    """The best choice with memory at most `limit`; None where none fits.

    Both arrays are (layers, options). Layers with fewer options than others repeat one.
    `other_time` is what the stage takes besides: times are equal if they are so in the whole.
    """
    # Amounts over the limit may be so large that sums of them leave 64 bits: the first option that
    # fits alone stands in for each one that does not.
    alone = memory <= limit
    if not alone.any(axis=1).all():
        return None
    rows = np.arange(len(times))
    chosen = np.where(alone, np.arange(times.shape[1]), alone.argmax(axis=1)[:, None])
    choice = _choose(times[rows[:, None], chosen], memory[rows[:, None], chosen], limit, other_time)
    if choice is None:
        return None
    return replace(choice, options=tuple(chosen[rows, choice.options].tolist()))


def _choose(times: Units, memory: Units, limit: int, other_time: int) -> Choice | None:
    """The same where every option alone fits."""
    if times.shape[1] ** len(times) <= _FEW_CHOICES:
        return _of_few(times, memory, limit, other_time)
    least_time, least_memory = times.min(axis=1), memory.min(axis=1)
    room = limit - int(least_memory.sum())
    if room < 0:
        return None
    paid, held = times - least_time[:, None], memory - least_memory[:, None]
    base = int(least_time.sum()) + other_time
    price, bound_paid = _price_and_choice(paid, held, room)
    most_paid = _with_rounding(base + bound_paid) - base
    frontiers = _frontiers(paid, held, room, price, most_paid)
    best = int(frontiers[0].time.min())
    most_paid = _with_rounding(base + best) - base
    least_held = int(frontiers[0].memory[frontiers[0].time <= most_paid].min())
    base_memory = int(least_memory.sum())
    most_held = min(_with_rounding(base_memory + least_held) - base_memory, room)
    options = _first_in_source(paid, held, frontiers, most_paid, most_held)
    rows = np.arange(len(options))
    return Choice(
        options=tuple(options.tolist()),
        time=int(times[rows, options].sum()),
        memory=int(memory[rows, options].sum()),
    )


def _of_few(times: Units, memory: Units, limit: int, other_time: int) -> Choice | None:
    """The same by trying all choices, in the order of the source."""
    choices = _all_choices(*times.shape)
    rows = np.arange(len(times))
    time, held = times[rows, choices].sum(axis=1), memory[rows, choices].sum(axis=1)
    left = np.flatnonzero(held <= limit)
    for amounts, other in ((time, other_time), (held, 0)):
        if not len(left):
            return None
        most = _with_rounding(int(amounts[left].min()) + other) - other
        left = left[amounts[left] <= most]
    first = left[0]
    options = tuple(choices[first].tolist())
    return Choice(options=options, time=int(time[first]), memory=int(held[first]))


@cache
def _all_choices(layers: int, options: int) -> NDArray[np.int64]:
    """Every choice of one of so many options for each layer, a row each."""
    numbers = np.unravel_index(np.arange(options**layers), (options,) * layers)
    return np.stack(numbers, axis=1).astype(np.int64)


def _with_rounding(amount: int) -> int:
    return amount + int(amount * RELATIVE_ROUNDING)


def _price_and_choice(paid: Units, held: Units, room: int) -> tuple[float, int]:
    """The price of memory in the linear relaxation, and the time of a choice that fits."""
    steps = steps_between(paid, held)
    rows = np.arange(len(paid))
    excess = int(held[rows, steps.start].sum()) - room
    if excess <= 0:
        return 0.0, 0
    times = paid[steps.layer, steps.target] - paid[steps.layer, steps.source]
    saved = held[steps.layer, steps.source] - held[steps.layer, steps.target]
    total_saved = np.cumsum(saved)
    last = int(np.searchsorted(total_saved, excess))
    price = float(times[last]) / float(saved[last])
    spare = int(total_saved[last]) - excess
    total = int(times[: last + 1].sum())
    for time, memory in sorted(
        zip(times[:last].tolist(), saved[:last].tolist(), strict=True), reverse=True
    ):
        # Steps of one layer build on each other; undoing is safe for layers of two options only.
        if memory <= spare and paid.shape[1] == 2:
            spare -= memory
            total -= time
    return price, total


def _frontiers(
    paid: Units, held: Units, room: int, price: float, most_paid: int
) -> list[_Frontier]:
    """The frontier of the layers from each layer on, and the empty one at the end."""
    priced = paid + price * held
    cheapest = priced.min(axis=1)
    before = np.concatenate([[0.0], np.cumsum(cheapest)])
    rounding = _FLOAT_ROUNDING * len(paid) * (float(cheapest.sum()) + price * room)
    most_priced = most_paid + price * room + rounding
    frontier = _Frontier(np.zeros(1, np.int64), np.zeros(1, np.int64))
    frontiers = [frontier]
    for layer in range(len(paid) - 1, -1, -1):
        time = (frontier.time[:, None] + paid[layer]).ravel()
        memory = (frontier.memory[:, None] + held[layer]).ravel()
        keep = (memory <= room) & (time + price * memory + before[layer] <= most_priced)
        frontier = _undominated(time[keep], memory[keep])
        frontiers.append(frontier)
    return frontiers[::-1]


def _undominated(time: Units, memory: Units) -> _Frontier:
    order = np.lexsort((time, memory))
    time, memory = time[order], memory[order]
    best_before = np.concatenate([[np.iinfo(np.int64).max], np.minimum.accumulate(time)[:-1]])
    keep = time < best_before
    return _Frontier(time[keep], memory[keep])


def _first_in_source(
    paid: Units, held: Units, frontiers: list[_Frontier], most_paid: int, most_held: int
) -> NDArray[np.int64]:
    """For each layer the first option with which the later ones can keep to both amounts."""
    options = np.zeros(len(paid), np.int64)
    for layer, rest in enumerate(frontiers[1:]):
        for option in range(paid.shape[1]):
            time = most_paid - int(paid[layer, option])
            memory = most_held - int(held[layer, option])
            if ((rest.time <= time) & (rest.memory <= memory)).any():
                options[layer] = option
                most_paid, most_held = time, memory
                break
    return options
