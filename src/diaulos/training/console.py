"""The progress of a run on the console: one line that lives on a terminal, some lines elsewhere."""

import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import TextIO

from diaulos.training.evaluation import EvaluationRecord
from diaulos.training.records import StepRecord
from diaulos.units import format_bytes, format_seconds

_SECONDS_BETWEEN_LINES = 2.0
"""Where the output is not a terminal, at most one line in this time."""
_STEPS_LOOKED_BACK = 20
"""For what a step usually takes."""


class Console:
    """Prints the steps of a run, as the rank that has the loss sees them."""

    def __init__(self, title: str, updates: int, stream: TextIO | None = None) -> None:
        self._title = title
        self._updates = updates
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._last_line_seconds = -_SECONDS_BETWEEN_LINES
        self._recent_seconds: deque[float] = deque(maxlen=_STEPS_LOOKED_BACK)

    def step(self, record: StepRecord) -> None:
        """Show a step."""
        now = time.monotonic()
        self._recent_seconds.append(record.step_seconds)
        is_last = record.batch == self._updates - 1
        line = self._line(record)
        if self._live:
            shown = line[: shutil.get_terminal_size().columns - 1]  # a line that wraps would stay
            self._stream.write("\r\x1b[K" + shown + ("\n" if is_last else ""))
        elif is_last or now - self._last_line_seconds >= _SECONDS_BETWEEN_LINES:
            self._last_line_seconds = now
            self._stream.write(line + "\n")
        self._stream.flush()

    def evaluation(self, record: EvaluationRecord) -> None:
        """Show an evaluation, in a line of its own."""
        line = f"{self._title}  after batch {record.batches}: held-out loss {record.loss:.4f}\n"
        self._stream.write(("\r\x1b[K" if self._live else "") + line)
        self._stream.flush()

    def _line(self, record: StepRecord) -> str:
        width = len(str(self._updates))
        step = f"{self._title}  step {record.batch + 1:>{width}}/{self._updates}"
        return "  ".join([step, *self._figures(record)])

    def _figures(self, record: StepRecord) -> Iterator[str]:
        """What is known of a step, the most wanted first."""
        yield f"loss {record.loss:.4f}"
        if record.gradient_norm is not None:
            yield f"gradient norm {record.gradient_norm:.3g}"
        else:
            yield f"skipped: gradients overflow at loss scale {record.loss_scale:g}"
        yield f"{record.tokens_per_second:,.0f} tokens/s"
        left = self._updates - 1 - record.batch
        if left:
            yield f"{_span(left * median(self._recent_seconds))} left"
        if record.model_flops_utilization is not None:
            yield f"MFU {record.model_flops_utilization:.1%}"
        yield f"memory {format_bytes(record.memory_bytes)}"
        yield f"bubble {record.bubble_fraction:.1%}"
        yield f"delay {record.gradient_delay}"
        yield f"versions {record.weight_versions}"
        if record.slack_seconds is not None:
            word = "slack" if record.slack_seconds >= 0 else "waited"
            yield f"{word} {format_seconds(abs(record.slack_seconds))}"


def _span(seconds: float) -> str:
    """A time to wait, in the two units that matter: `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
