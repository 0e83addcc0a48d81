"""The console line of a run."""

import io
from dataclasses import replace

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
    assert last == "2bw  step 3/3  loss 2.5000  gradient norm 1  100 tokens/s  bubble 25.0%"


def test_evaluations_are_shown_in_lines_of_their_own():
    """The held-out loss stands beside the number of batches that were done before."""
    pipe = io.StringIO()
    Console("2bw", 3, pipe).evaluation(EvaluationRecord(batches=2, loss=1.5))

    assert pipe.getvalue() == "2bw  after batch 2: held-out loss 1.5000\n"
