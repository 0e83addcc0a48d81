"""How many microbatches a stage may have in flight when its options may take so much time.

Choosing one option for each layer within a memory limit is a multiple-choice knapsack; its linear
relaxation (Sinha and Zoltners, 1979) starts from the fastest options and takes steps to options
that need less memory, in order of time paid for each byte saved, the last one in part. With y
microbatches in flight an option holds `activation * y + fixed` bytes, so the order of the steps
changes only at a few values of y: between them, in a `Regime`, a budget of time says which steps
are taken, and those say which y fit. Sums over a stage are differences of sums over downsets.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.stage_costs.costs import LayerCosts
from diaulos.planning.search.stage_costs.downsets import Downsets
from diaulos.planning.search.stage_costs.fixed_point import Units
from diaulos.planning.search.stage_costs.steps import ORDER_ROUNDING, Steps, steps_between

Bytes = NDArray[np.float64]
NEVER = 2**61
"""A time that is longer than any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """Numbers in flight, `first` to `last`, with which the steps have one order.

    Tables are (downsets, steps taken): time that the steps cost, and what is then held.
    """

    first: int
    last: int
    paid: Units
    activation_bytes: Bytes
    fixed_bytes: Bytes

    def memory_at_start(
        self,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        in_flight: NDArray[np.int64],
    ) -> Bytes:
        """Bytes of the fastest options."""
        held: Bytes = self.activation_bytes[outer, 0] - self.activation_bytes[inner, 0]
        held *= in_flight
        held += self.fixed_bytes[outer, 0] - self.fixed_bytes[inner, 0]
        return held

    def most_in_flight_at_all(
        self, outer: NDArray[np.int32], inner: NDArray[np.int32], limit_bytes: float
    ) -> NDArray[np.int64]:
        """The most in flight up to `last` with the options of least memory; never too small.

        Below `first` it says nothing.
        """
        held = self.activation_bytes[outer, -1] - self.activation_bytes[inner, -1]
        once = self.fixed_bytes[outer, -1] - self.fixed_bytes[inner, -1]
        return self._most(held, once, limit_bytes, surely=False)

    def most_in_flight(
        self,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        slack: Units,
        limit_bytes: float,
        *,
        surely: bool = False,
    ) -> NDArray[np.int64]:
        """The most in flight up to `last` that fit; below `first` says nothing.

        `slack` is the time for steps, at least 0. With `surely` only whole steps are taken and
        the number is never too large, else it is never too small.
        """
        taken = self._steps_within(outer, inner, slack)
        steps = self.paid.shape[1]
        high, low = outer.astype(np.int64) * steps + taken, inner.astype(np.int64) * steps + taken
        activation = self.activation_bytes.ravel()
        fixed = self.fixed_bytes.ravel()
        held = activation[high] - activation[low]
        once = fixed[high] - fixed[low]
        if steps > 1 and not surely:
            part, high, low = self._part_of_next(high, low, taken, slack)
            held += part * (activation[high] - activation[low] - held)
            once += part * (fixed[high] - fixed[low] - once)
        return self._most(held, once, limit_bytes, surely=surely)

    def _most(
        self, held: Bytes, once: Bytes, limit_bytes: float, *, surely: bool
    ) -> NDArray[np.int64]:
        """How often `held` fits beside `once`, up to `last`; rounded against `surely`."""
        rounding = self._memory_rounding(limit_bytes)
        room = limit_bytes - once + (-rounding if surely else rounding)
        most = np.full(len(held), float(self.last))
        np.divide(room, held, out=most, where=held > 0)
        most = np.where((held <= 0) & (room < 0), 0.0, np.clip(most, 0.0, self.last))
        return most.astype(np.int64)

    def least_paid(
        self,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        in_flight: NDArray[np.int64],
        limit_bytes: float,
    ) -> Units:
        """The time of the steps with which so many fit, never too long; `NEVER` if none do."""
        steps = self.paid.shape[1]
        last = np.full(len(outer), steps - 1)
        rounding = self._memory_rounding(limit_bytes)
        low, high = np.zeros(len(outer), np.int64), last
        for _ in range((steps - 1).bit_length()):
            middle = (low + high) // 2
            enough = self._held(outer, inner, middle, in_flight) <= limit_bytes + rounding
            low, high = (
                np.where(enough, low, np.minimum(middle + 1, high)),
                np.where(enough, middle, high),
            )
        held = self._held(outer, inner, high, in_flight)
        paid = self.paid[outer, high] - self.paid[inner, high]
        before = np.maximum(high - 1, 0)
        paid_before = self.paid[outer, before] - self.paid[inner, before]
        held_before = self._held(outer, inner, before, in_flight)
        part = np.zeros(len(held))
        saved = held_before - held
        np.divide(held_before - limit_bytes - rounding, saved, out=part, where=saved > 0)
        part = np.clip(part - ORDER_ROUNDING, 0.0, 1.0)
        least = paid_before + np.floor((paid - paid_before) * part).astype(np.int64)
        fits = held <= limit_bytes + rounding
        return np.where(fits, np.minimum(least, paid), NEVER)

    def _held(
        self,
        outer: NDArray[np.int32],
        inner: NDArray[np.int32],
        steps: NDArray[np.int64],
        in_flight: NDArray[np.int64],
    ) -> Bytes:
        held = self.activation_bytes[outer, steps] - self.activation_bytes[inner, steps]
        held *= in_flight
        held += self.fixed_bytes[outer, steps] - self.fixed_bytes[inner, steps]
        return held

    def _memory_rounding(self, limit_bytes: float) -> float:
        largest = self.fixed_bytes.max() + self.activation_bytes.max() * self.last
        return ORDER_ROUNDING * (limit_bytes + float(largest))

    def _steps_within(
        self, outer: NDArray[np.int32], inner: NDArray[np.int32], slack: Units
    ) -> NDArray[np.int64]:
        """The most steps whose time is within the slack."""
        steps = self.paid.shape[1]
        paid = self.paid.ravel()
        high_row, low_row = outer.astype(np.int64) * steps, inner.astype(np.int64) * steps
        low = np.zeros(len(slack), np.int64)
        stride = 1 << max((steps - 1).bit_length() - 1, 0)
        while stride:
            ahead = low + stride
            inside = np.minimum(ahead, steps - 1)
            within = (ahead < steps) & (paid[high_row + inside] - paid[low_row + inside] <= slack)
            low = np.where(within, ahead, low)
            stride >>= 1
        return low

    def _part_of_next(
        self,
        high: NDArray[np.int64],
        low: NDArray[np.int64],
        taken: NDArray[np.int64],
        slack: Units,
    ) -> tuple[Bytes, NDArray[np.int64], NDArray[np.int64]]:
        """Which part of the next step the slack left pays for, and where that step stands."""
        paid = self.paid.ravel()
        last = taken == self.paid.shape[1] - 1
        spent = paid[high] - paid[low]
        high, low = high + ~last, low + ~last
        price = np.maximum(paid[high] - paid[low] - spent, 1)
        part = np.where(last, 0.0, np.minimum((slack - spent) / price + ORDER_ROUNDING, 1.0))
        return part, high, low


def regimes(layers: LayerCosts, downsets: Downsets, most_in_flight: int) -> tuple[Regime, ...]:
    """The regimes from 1 to `most_in_flight`, ascending."""
    held, once = layers.activation_bytes, layers.fixed_bytes
    merged: list[tuple[int, int, Steps]] = []
    for first, last, steps in _ranges(layers.times, held, once, 1, most_in_flight):
        goes_on = bool(merged) and merged[-1][2].same_as(steps)
        merged.append((merged.pop()[0] if goes_on else first, last, steps))
    return tuple(_tables(layers, downsets, steps, first, last) for first, last, steps in merged)


def _ranges(
    times: Units, held: Bytes, once: Bytes, first: int, last: int
) -> Iterator[tuple[int, int, Steps]]:
    """Ranges of y with one order of steps.

    Which of two steps is the better bargain, and which points lie on a layer's convex hull, are
    signs of expressions that are linear in y: what holds at both ends of a range holds inside.
    """
    stack = [
        (
            first,
            steps_between(times, held * first + once),
            last,
            steps_between(times, held * last + once),
        )
    ]
    while stack:
        low, low_steps, high, high_steps = stack.pop()
        if low_steps.same_as(high_steps):
            yield low, high, low_steps
        elif high - low == 1:
            yield low, low, low_steps
            yield high, high, high_steps
        else:
            middle = (low + high) // 2
            below = steps_between(times, held * middle + once)
            above = steps_between(times, held * (middle + 1) + once)
            stack.append((middle + 1, above, high, high_steps))
            stack.append((low, low_steps, middle, below))


def _tables(layers: LayerCosts, downsets: Downsets, steps: Steps, first: int, last: int) -> Regime:
    rows = np.arange(len(layers.times))
    members = downsets.members
    stepping = members[:, steps.layer]

    def table(amounts: NDArray[Any], start: NDArray[Any]) -> NDArray[Any]:
        change = amounts[steps.layer, steps.target] - amounts[steps.layer, steps.source]
        result = np.empty((len(members), len(change) + 1), amounts.dtype)
        result[:, 0] = members.astype(amounts.dtype) @ start
        np.cumsum(stepping * change, axis=1, out=result[:, 1:])
        result[:, 1:] += result[:, :1]
        return result

    return Regime(
        first=first,
        last=last,
        paid=table(layers.times, 0 * rows),
        activation_bytes=table(layers.activation_bytes, layers.activation_bytes[rows, steps.start]),
        fixed_bytes=table(layers.fixed_bytes, layers.fixed_bytes[rows, steps.start]),
    )
