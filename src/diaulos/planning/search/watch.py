"""Looking after a search: how far it is, and when it must stop."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a search knows so far."""

    elapsed_seconds: float
    bound_seconds: float
    """No plan runs a batch in less."""
    best_seconds: float
    """Of a batch with the best plan so far; infinite where none is known."""


def say_nothing(progress: Progress) -> None:
    """Report nothing."""
    del progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When a search must stop, and whom it tells how far it is.

    A search that is stopped, also by Ctrl-C, answers with the best plan so far.
    """

    time_limit_seconds: float = math.inf
    report: Callable[[Progress], None] = say_nothing
    start_seconds: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if not self.time_limit_seconds >= 0:
            raise InputError(
                f"the time limit is {self.time_limit_seconds} s", "it must be at least 0"
            )

    @property
    def elapsed_seconds(self) -> float:
        """Since the watch was made."""
        return time.perf_counter() - self.start_seconds

    @property
    def is_over(self) -> bool:
        """Whether the time limit is reached."""
        return self.elapsed_seconds >= self.time_limit_seconds

    def tell(self, *, bound_seconds: float, best_seconds: float) -> None:
        """Report progress."""
        self.report(
            Progress(
                elapsed_seconds=self.elapsed_seconds,
                bound_seconds=bound_seconds,
                best_seconds=best_seconds,
            )
        )
