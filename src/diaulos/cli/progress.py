"""The display of a long search: a line with the best plan and the bound closing in."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from diaulos.planning.search.watch import Progress, say_nothing
from diaulos.units import format_seconds

_SECONDS_BEFORE_SHOWN = 1.0


@contextmanager
def progress_display(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """What a search reports to; shows a line on a terminal's stderr, from one second on."""
    if quiet or not sys.stderr.isatty():
        yield say_nothing
        return
    shown = False

    def show(progress: Progress) -> None:
        nonlocal shown
        if progress.elapsed_seconds >= _SECONDS_BEFORE_SHOWN:
            sys.stderr.write(f"\r\x1b[K{_line(progress)}")
            sys.stderr.flush()
            shown = True

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _line(progress: Progress) -> str:
    best, bound = progress.best_seconds, progress.bound_seconds
    gap = f", at most {best / bound - 1:.2%} from the best" if bound > 0 else ""
    return (
        f"{progress.elapsed_seconds:.0f} s: batch {format_seconds(best)}, "
        f"bound {format_seconds(bound)}{gap} (Ctrl-C takes it)"
    )
