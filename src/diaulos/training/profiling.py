"""A window of steps under torch's profiler: one trace for each rank, in the run's folder."""

from dataclasses import dataclass
from pathlib import Path

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

    def batches(self, steps_per_batch: int) -> range:
        """The batches of the steps, of which one may have several."""
        return range((self.first - 1) // steps_per_batch, -(-self.last // steps_per_batch))


class StepProfiler:
    """Profiles some batches of one rank; nothing may be in flight where they begin and end.

    Communication that outlives the profiler would write into what it has freed.
    """

    def __init__(self, batches: range, path: Path, device: torch.device) -> None:
        """Without batches it does nothing."""
        self._batches = batches
        self._path = path
        self._activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            self._activities.append(ProfilerActivity.CUDA)
        self._profile: profile | None = None

    def before(self, batch: int) -> None:
        """Begin where it is time to, before a batch."""
        if self._profile is None and batch in self._batches:
            self._profile = profile(activities=self._activities)
            self._profile.start()

    def after(self, batch: int) -> None:
        """End after the last batch, and write what was seen."""
        if self._profile is not None and batch + 1 not in self._batches:
            profiled, self._profile = self._profile, None
            profiled.stop()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            profiled.export_chrome_trace(str(self._path))


def profile_path(folder: Path, rank: int) -> Path:
    """Where the trace of a rank stands."""
    return folder / f"profile_{rank}.json"
