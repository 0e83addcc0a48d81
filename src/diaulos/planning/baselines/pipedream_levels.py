"""The dynamic programme of PipeDream's planner, for machines with equal links."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.baselines.pipedream_states import Amounts, States

Fits = Callable[[int, int], NDArray[np.bool_]]
"""Which stages fit in memory, by the sum of replicas from them on and their own replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The best pipelines from one state to each other one.

    The first axis is the number of machines, the second the state where the pipeline ends.
    """

    start: int
    seconds: Amounts
    last_start: NDArray[np.int64]
    """The state where the last stage begins."""
    last_replicas: NDArray[np.int64]

    @property
    def machines(self) -> NDArray[np.int64]:
        """For each end, all machines, or as many as can be used."""
        possible = np.isfinite(self.seconds)
        result: NDArray[np.int64] = len(possible) - 1 - possible[::-1].argmax(axis=0)
        return result

    @property
    def best_seconds(self) -> Amounts:
        """For each end, with so many machines; infinite where there is no pipeline."""
        result: Amounts = np.take_along_axis(self.seconds, self.machines[None], axis=0)[0]
        return result

    def stages(self, end: int) -> Iterator[tuple[int, int, int]]:
        """First and last state and replicas of each stage, from the last one back."""
        machines = int(self.machines[end])
        while end != self.start:
            begin, replicas = (
                int(self.last_start[machines, end]),
                int(self.last_replicas[machines, end]),
            )
            yield begin, end, replicas
            end, machines = begin, machines - replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Machines with equal links, and what stages cost on them: devices, or nodes of devices.

    Costs are by replicas, for each pair of states: infinite where they are not nested.
    """

    machines: int
    first_seconds: Mapping[int, Amounts]
    """Of the first stage of a pipeline."""
    later_seconds: Mapping[int, Amounts]
    """Of any other stage, with its borders."""
    fits: Fits

    @classmethod
    def of(
        cls,
        states: States,
        seconds: Amounts,
        parameter_bytes: Amounts,
        *,
        machines: int,
        below: int,
        bandwidth_bytes_per_second: float,
        degrees: Sequence[int],
        fits: Fits,
    ) -> "Level":
        """Costs from those of a stage on one machine, which has `below` machines inside."""
        first, later = {}, {}
        sent = 2 * states.crossing_bytes / bandwidth_bytes_per_second
        received_after = np.append(sent[:-1], 0.0)
        for d in degrees:
            if d <= machines:
                reduced = 4 * (d - 1) * parameter_bytes / (d * bandwidth_bytes_per_second)
                first[d] = (seconds + reduced / below) / d
                borders = np.maximum(sent[:, None], received_after[None, :]) / d
                later[d] = np.maximum((seconds + reduced) / d, borders)
        return cls(machines=machines, first_seconds=first, later_seconds=later, fits=fits)

    def run(self, start: int) -> Run:
        """The best pipelines that begin at a state, by ever more machines."""
        shape = self.machines + 1, len(self.first_seconds[1])
        run = Run(
            start=start,
            seconds=np.full(shape, np.inf),
            last_start=np.zeros(shape, np.int64),
            last_replicas=np.zeros(shape, np.int64),
        )
        for machines in range(1, self.machines + 1):
            if machines in self.first_seconds:
                self._start(run, machines)
            for replicas in self.later_seconds:
                if replicas < machines:
                    self._append(run, machines, replicas)
        return run

    def _start(self, run: Run, machines: int) -> None:
        """Pipelines of one stage."""
        fitting = self.fits(self.machines, machines)[run.start]
        run.seconds[machines] = np.where(fitting, self.first_seconds[machines][run.start], np.inf)
        run.last_start[machines] = run.start
        run.last_replicas[machines] = machines

    def _append(self, run: Run, machines: int, replicas: int) -> None:
        """Pipelines with one more stage than those on fewer machines."""
        before = run.seconds[machines - replicas]
        begins = np.flatnonzero(np.isfinite(before))
        if not len(begins):
            return
        fitting = self.fits(self.machines - machines + replicas, replicas)[begins]
        last = np.where(fitting, self.later_seconds[replicas][begins], np.inf)
        seconds = np.maximum(before[begins, None], last)
        chosen = seconds.argmin(axis=0)
        least = seconds[chosen, np.arange(seconds.shape[1])]
        better = np.flatnonzero(least < run.seconds[machines])
        run.seconds[machines, better] = least[better]
        run.last_start[machines, better] = begins[chosen[better]]
        run.last_replicas[machines, better] = replicas
