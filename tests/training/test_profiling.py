"""Windows of steps under torch's profiler."""

import json

import pytest
import torch

from diaulos.errors import InputError
from diaulos.training.profiling import ProfilerWindow, StepProfiler


def _names(path):
    return [event["name"] for event in json.loads(path.read_text())["traceEvents"]]


def test_the_steps_of_the_window_are_traced_and_no_others(tmp_path):
    """Each step does what no other does; the trace holds that of the third and the fourth."""
    path = tmp_path / "run" / "profile_0.json"
    profiler = StepProfiler(ProfilerWindow(first=3, last=4).batches(1), path, torch.device("cpu"))
    works = (torch.sin, torch.cos, torch.tan, torch.exp, torch.log)
    for batch, work in enumerate(works):
        profiler.before(batch)
        work(torch.ones(2))
        profiler.after(batch)

    done = {name for name in _names(path) if name in {f"aten::{work.__name__}" for work in works}}
    assert {"aten::tan", "aten::exp"} == done


def test_without_a_window_nothing_is_written(tmp_path):
    """No batch is profiled."""
    profiler = StepProfiler(range(0), tmp_path / "profile.json", torch.device("cpu"))
    profiler.before(0)
    profiler.after(0)

    assert not list(tmp_path.iterdir())


def test_a_batch_of_several_steps_is_traced_whole():
    """Under PipeDream a batch has as many steps as microbatches."""
    assert range(1, 3) == ProfilerWindow(first=6, last=9).batches(4)


@pytest.mark.parametrize(("first", "last"), [(0, 3), (5, 4)])
def test_a_window_without_steps_is_refused(first, last):
    """Steps are counted from 1, the first not after the last."""
    with pytest.raises(InputError, match=f"the profiled steps are {first} to {last}"):
        ProfilerWindow(first=first, last=last)
