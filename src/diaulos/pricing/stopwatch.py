"""Time on a device, between marks."""

import time
from itertools import pairwise

import torch


class Stopwatch:
    """Notes when a device gets to each mark; the laps are the seconds between them.

    On an accelerator the marks are events in its queue, so that taking one does not make the
    host wait for the device, which would show launch times that training hides.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_host = device.type == "cpu"
        self._device = device
        self._host_marks: list[float] = []
        self._device_marks: list[torch.Event] = []

    def mark(self) -> None:
        """The end of a lap, and the start of the next."""
        if self._on_host:
            self._host_marks.append(time.perf_counter())
        else:
            event = torch.Event(self._device, enable_timing=True)
            event.record()
            self._device_marks.append(event)

    def laps(self) -> list[float]:
        """Seconds of each lap so far; waits until the device has passed the last mark."""
        if self._on_host:
            return [after - before for before, after in pairwise(self._host_marks)]
        self._device_marks[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(self._device_marks)]
