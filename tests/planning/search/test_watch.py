"""A watch says when a search must stop, and passes on how far it is."""

import math
import time

import pytest

from diaulos.errors import InputError
from diaulos.planning.search.watch import Progress, Watch


def test_time_limits() -> None:
    """A search is over once its time is, counted from when the watch was made."""
    assert Watch(time_limit_seconds=0.0).is_over
    assert not Watch().is_over
    long_ago = time.perf_counter() - 100.0
    assert Watch(time_limit_seconds=99.0, start_seconds=long_ago).is_over
    assert not Watch(time_limit_seconds=1e6, start_seconds=long_ago).is_over
    assert Watch(start_seconds=long_ago).elapsed_seconds >= 100.0


@pytest.mark.parametrize("seconds", [-3.0, math.nan])
def test_limits_that_are_none(seconds: float) -> None:
    """A negative limit is refused, and so is one that is no number."""
    with pytest.raises(InputError, match=r"the time limit is .* s; it must be at least 0"):
        Watch(time_limit_seconds=seconds)


def test_progress_is_passed_on() -> None:
    """What is told is reported, with the time since the start; without a listener to nobody."""
    reports: list[Progress] = []
    start = time.perf_counter() - 5.0
    watch = Watch(report=reports.append, start_seconds=start)
    watch.tell(bound_seconds=1.0, best_seconds=math.inf)
    (report,) = reports
    assert (report.bound_seconds, report.best_seconds) == (1.0, math.inf)
    assert 5.0 <= report.elapsed_seconds <= watch.elapsed_seconds
    Watch().tell(bound_seconds=1.0, best_seconds=2.0)
