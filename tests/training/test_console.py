"""The console line of a run."""

import io
from dataclasses import replace

import pytest

from diaulos.training.console import Console
from diaulos.training.evaluation import EvaluationRecord
from tests.training.test_records import STEP


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_one_line_that_lives():
    """On a terminal each step replaces the line, and the last one ends it."""
    terminal = _Terminal()
    console = Console("2bw", 2, terminal)
    for batch in range(2):
        console.step(replace(STEP, batch=batch))

    assert terminal.getvalue().count("\r") == 2
    assert terminal.getvalue().count("\n") == 1


def test_a_pipe_sees_the_first_and_the_last_step():
    """Elsewhere steps that follow fast are left out, but never the last one."""
    pipe = io.StringIO()
    console = Console("2bw", 3, pipe)
    for batch in range(3):
        console.step(replace(STEP, batch=batch))

    first, last = pipe.getvalue().splitlines()
    assert "step 1/3" in first
    assert last == (
        "2bw  step 3/3  loss 2.5000  gradient norm 1  100 tokens/s  memory 1 GiB  bubble 25.0%"
        "  delay 1  versions 2  slack 2 ms"
    )


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"model_flops_utilization": 0.412}, "MFU 41.2%"),
        ({"slack_seconds": -0.003}, "waited 3 ms"),
        ({"gradient_norm": None, "loss_scale": 512.0}, "skipped: gradients overflow at loss scale"),
        ({"step_seconds": 60.0}, "1 h 39 min left"),
        ({"step_seconds": 1.0}, "1 min 39 s left"),
        ({"step_seconds": 0.2}, "20 s left"),
    ],
)
def test_a_line_says_what_is_known(changes, shown):
    """MFU, waiting, skipped updates and the time that is left stand in it where there are any."""
    pipe = io.StringIO()
    Console("2bw", 100, pipe).step(replace(STEP, **changes))

    assert shown in pipe.getvalue()


def test_a_line_never_wraps_on_a_terminal(monkeypatch):
    """What is longer than a terminal is cut: the next step could not replace two lines."""
    monkeypatch.setenv("COLUMNS", "40")
    terminal = _Terminal()
    Console("2bw", 100, terminal).step(STEP)

    assert len(terminal.getvalue().removeprefix("\r\x1b[K")) == 39


def test_evaluations_are_shown_in_lines_of_their_own():
    """The held-out loss stands beside the number of batches that were done before."""
    pipe = io.StringIO()
    Console("2bw", 3, pipe).evaluation(EvaluationRecord(batches=2, loss=1.5))

    assert pipe.getvalue() == "2bw  after batch 2: held-out loss 1.5000\n"
