"""A window of steps under torch's profiler: one trace for each rank, in the run's folder."""

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch.profiler import ProfilerActivity, profile

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerWindow:
    """The steps that are profiled, counted from 1 as on the console."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last:
            raise InputError(
                f"the profiled steps are {self.first} to {self.last}",
                "the first is at least 1, and the last not before it",
            )


class StepProfiler:
    """Profiles a window of one rank's steps; without a window it does nothing.

    From the update before the first step to the update of the last one: under a schedule without
    flushes parts of the neighbouring batches fall between these.
    """

    def __init__(
        self, window: ProfilerWindow | None, path: Path, device: torch.device, *, updates: int = 0
    ) -> None:
        """`updates` are done already, of a run that is resumed."""
        self._window = window
        self._path = path
        self._activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            self._activities.append(ProfilerActivity.CUDA)
        self._profile: profile | None = None
        self._updates = updates

    def __enter__(self) -> Self:
        self.after_update(self._updates)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def after_update(self, updates: int) -> None:
        """Begin or end where it is time to after so many updates."""
        if self._window is None:
            return
        if updates == self._window.last:
            self._stop()
        elif updates == self._window.first - 1:
            self._profile = profile(activities=self._activities)
            self._profile.start()

    def _stop(self) -> None:
        """End, and write what was seen."""
        profiled, self._profile = self._profile, None
        if profiled is not None:
            profiled.stop()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            profiled.export_chrome_trace(str(self._path))


def profile_path(folder: Path, rank: int) -> Path:
    """Where the trace of a rank stands."""
    return folder / f"profile_{rank}.json"
