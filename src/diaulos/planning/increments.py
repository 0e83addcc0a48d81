"""Steps from the fastest options of layers to those that need least memory, best bargain first.

They solve the linear relaxation of choosing one option for each layer within a memory limit
(a multiple-choice knapsack; Sinha and Zoltners, 1979): take steps in order of time paid for each
byte saved until the memory fits. With the last step cut to what is needed this bounds the time
from below, with the whole step it is a choice that fits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Units = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Increments:
    """Steps of n layers under several memory costs at once; row r belongs to `memory[r]`."""

    fastest: Units
    """Time of each layer's fastest option (n)."""
    start_memory: Units
    """Memory of the fastest options, the least where several are equally fast (rows, n)."""
    least_memory: Units
    """The least memory of any option of each layer (rows, n)."""
    layer: NDArray[np.int64]
    """Whose step it is (rows, steps)."""
    time: Units
    """Time that the step costs (rows, steps)."""
    memory: Units
    """Memory that the step saves; steps that save nothing stand last (rows, steps)."""


def increments(times: Units, memory: Units) -> Increments:
    """The steps along the lower convex hull of each layer's (memory, time) points.

    `times` is (n, options), `memory` is (rows, n, options).
    """
    rows, layers, options = memory.shape
    fastest = times.min(axis=1)
    start = np.where(times == fastest[:, None], memory, np.iinfo(np.int64).max).min(axis=2)
    now_time, now_memory = np.broadcast_to(fastest, (rows, layers)), start
    time_steps, memory_steps = [], []
    for _ in range(options - 1):
        paid, saved = _best_step(times - now_time[..., None], now_memory[..., None] - memory)
        now_time, now_memory = now_time + paid, now_memory - saved
        time_steps.append(paid)
        memory_steps.append(saved)
    return _sorted_steps(fastest, start, memory.min(axis=2), time_steps, memory_steps)


def _best_step(paid: Units, saved: Units) -> tuple[Units, Units]:
    ratio = np.full(saved.shape, np.inf)
    np.divide(paid, saved, out=ratio, where=saved > 0)
    best = ratio == ratio.min(axis=2, keepdims=True)
    chosen = np.where(best & (saved > 0), saved, 0).argmax(axis=2)[..., None]
    step_saved = np.take_along_axis(saved, chosen, axis=2)[..., 0]
    step_paid = np.take_along_axis(paid, chosen, axis=2)[..., 0]
    is_step = step_saved > 0
    return np.where(is_step, step_paid, 0), np.where(is_step, step_saved, 0)


def _sorted_steps(
    fastest: Units, start: Units, least: Units, times: list[Units], memory: list[Units]
) -> Increments:
    rows, layers = start.shape
    shape = (rows, layers * len(times))
    time = np.stack(times, axis=2).reshape(shape) if times else np.zeros(shape, np.int64)
    saved = np.stack(memory, axis=2).reshape(shape) if memory else np.zeros(shape, np.int64)
    ratio = np.full(shape, np.inf)
    np.divide(time, saved, out=ratio, where=saved > 0)
    order = np.argsort(ratio, axis=1, kind="stable")
    return Increments(
        fastest=fastest,
        start_memory=start,
        least_memory=least,
        layer=order // max(len(times), 1),
        time=np.take_along_axis(time, order, axis=1),
        memory=np.take_along_axis(saved, order, axis=1),
    )
