"""The progress of a run on the console: one line that lives on a terminal, some lines elsewhere."""

import sys
import time
from typing import TextIO

from diaulos.training.evaluation import EvaluationRecord
from diaulos.training.records import StepRecord

_SECONDS_BETWEEN_LINES = 2.0
"""Where the output is not a terminal, at most one line in this time."""


class Console:
    """Prints the steps of a run, as the rank that has the loss sees them."""

    def __init__(self, title: str, updates: int, stream: TextIO | None = None) -> None:
        self._title = title
        self._updates = updates
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._last_line_seconds = -_SECONDS_BETWEEN_LINES

    def step(self, record: StepRecord) -> None:
        """Show a step."""
        now = time.monotonic()
        is_last = record.batch == self._updates - 1
        if self._live:
            self._stream.write("\r\x1b[K" + self._line(record) + ("\n" if is_last else ""))
        elif is_last or now - self._last_line_seconds >= _SECONDS_BETWEEN_LINES:
            self._last_line_seconds = now
            self._stream.write(self._line(record) + "\n")
        self._stream.flush()

    def evaluation(self, record: EvaluationRecord) -> None:
        """Show an evaluation, in a line of its own."""
        line = f"{self._title}  after batch {record.batches}: held-out loss {record.loss:.4f}\n"
        self._stream.write(("\r\x1b[K" if self._live else "") + line)
        self._stream.flush()

    def _line(self, record: StepRecord) -> str:
        width = len(str(self._updates))
        if record.gradient_norm is not None:
            norm = f"gradient norm {record.gradient_norm:.3g}"
        else:
            norm = f"skipped: gradients overflow at loss scale {record.loss_scale:g}"
        return (
            f"{self._title}  step {record.batch + 1:>{width}}/{self._updates}"
            f"  loss {record.loss:.4f}  {norm}"
            f"  {record.tokens_per_second:,.0f} tokens/s  bubble {record.bubble_fraction:.1%}"
        )
