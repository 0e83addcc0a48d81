"""How long an operation takes on a device, over and over."""

import time
from collections.abc import Callable
from statistics import median

import torch

from diaulos.pricing.stopwatch import Stopwatch

_BUDGET_SECONDS = 0.06
"""Of one operation's repetitions."""
_FEWEST, _MOST = 3, 300


class Timer:
    """Times operations on a device.

    On a CPU with one thread it counts the time that the process computes, so that what other
    processes take meanwhile does not count; elsewhere the time that passes.
    """

    def __init__(self, device: torch.device, *, threads: int) -> None:
        self._device = device
        alone = threads == 1
        self._clock = time.process_time if alone else time.perf_counter

    def seconds(self, run: Callable[[], object]) -> float:
        """The median of repetitions that take about 0.06 s, after two that do not count."""
        run()
        once = self._laps(run, 1)[0]
        repetitions = int(_BUDGET_SECONDS / max(once, 1e-9))
        return median(self._laps(run, min(max(repetitions, _FEWEST), _MOST)))

    def _laps(self, run: Callable[[], object], repetitions: int) -> list[float]:
        if self._device.type != "cpu":
            watch = Stopwatch(self._device)
            watch.mark()
            for _ in range(repetitions):
                run()
                watch.mark()
            return watch.laps()
        laps = []
        for _ in range(repetitions):
            start = self._clock()
            run()
            laps.append(self._clock() - start)
        return laps
