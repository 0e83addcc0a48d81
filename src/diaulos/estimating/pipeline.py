"""The pipeline of one replica: how long a batch takes, and what its ranks hold meanwhile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from diaulos.schedules.actions import Kind
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

GENERATOR_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "1f1b": "1f1b",
        "interleaved": "interleaved",
        "gpipe": "gpipe",
        "2bw": "2bw",
        "zero-bubble": "zb-h1",
    }
)
"""The schedules of a configuration by the names of their generators."""

_ROUNDS = 8
"""Rounds of one microbatch a position after which a flushed pipeline only repeats itself, but for
less than one percent where messages are slow."""


class Simulators:
    """Schedules made ready to be simulated, each made once for all estimates that share this."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, PipelineShape, int], Simulator] = {}

    def of(self, name: str, shape: PipelineShape, batches: int = 1) -> Simulator:
        """The schedule of this name, as configurations call it."""
        key = (name, shape, batches)
        if key not in self._made:
            self._made[key] = Simulator(generate(GENERATOR_NAMES[name], shape, batches))
        return self._made[key]


@dataclass(frozen=True, kw_only=True)
class PipelineRun:
    """What a batch comes to."""

    seconds: float
    """From the first forward to the last backward; in steady state where there is no flush."""
    without_messages: Callable[[], float]
    """Works out the same, if messages took no time."""
    peak_bytes: tuple[float, ...] = ()
    """By position, of activations."""

    @cached_property
    def seconds_without_messages(self) -> float:
        """The seconds, if messages took no time."""
        return self.without_messages()

    @staticmethod
    def lasting(seconds: float, peak_bytes: tuple[float, ...] = ()) -> "PipelineRun":
        """A run of so many seconds, none of which messages take."""
        return PipelineRun(seconds=seconds, without_messages=lambda: seconds, peak_bytes=peak_bytes)


def run_pipeline(
    name: str,
    *,
    depth: int,
    chunks: int,
    microbatches: int,
    costs: Sequence[StageCosts],
    links: Sequence[Link],
    simulators: Simulators,
) -> PipelineRun:
    """Simulate a schedule of `depth` positions with these costs of stages and links of borders."""
    if depth == 1 and chunks == 1:
        (only,) = costs
        seconds = microbatches * (only.forward_seconds + only.backward_seconds)
        held = only.activation_bytes * (microbatches if name == "gpipe" else 1)
        return PipelineRun.lasting(seconds, (held,))
    repeats, kept = _repeated(name, depth, microbatches)
    shape = PipelineShape(replicas=(1,) * depth, microbatches=kept, chunks=chunks)
    runs = [simulators.of(name, shape)]
    if repeats:
        longer = PipelineShape(replicas=(1,) * depth, microbatches=kept + depth, chunks=chunks)
        runs.append(simulators.of(name, longer))

    def lasts(some: Sequence[Link]) -> float:
        return _extrapolated([run.makespan_seconds(costs, some) for run in runs], repeats)

    return PipelineRun(
        seconds=lasts(links),
        without_messages=lambda: lasts([Link()] * len(links)),
        peak_bytes=_peaks(runs[-1].schedule, costs),
    )


def steady_pipeline(
    name: str,
    *,
    depth: int,
    microbatches: int,
    costs: Sequence[StageCosts],
    links: Sequence[Link],
    simulators: Simulators,
) -> PipelineRun:
    """Of a schedule that never flushes: what one more batch adds when the pipeline is full."""
    shape = PipelineShape(replicas=(1,) * depth, microbatches=microbatches)
    shorter, longer = (simulators.of(name, shape, batches) for batches in (3, 4))

    def lasts(some: Sequence[Link]) -> float:
        return longer.makespan_seconds(costs, some) - shorter.makespan_seconds(costs, some)

    return PipelineRun(
        seconds=lasts(links),
        without_messages=lambda: lasts([Link()] * len(links)),
        peak_bytes=_peaks(longer.schedule, costs),
    )


def _repeated(name: str, depth: int, microbatches: int) -> tuple[int, int]:
    """How many rounds of `depth` microbatches need no simulating, and how many microbatches do."""
    uneven = name == "interleaved" and microbatches % depth
    if (
        name == "gpipe" or uneven
    ):  # one holds more with each microbatch, the other has uneven rounds
        return 0, microbatches
    repeats = max(microbatches // depth - _ROUNDS, 0)
    return repeats, microbatches - repeats * depth


def _extrapolated(seconds: Sequence[float], repeats: int) -> float:
    """Of the shorter run, and as often as there are rounds what the longer one has more."""
    if not repeats:
        return seconds[0]
    shorter, longer = seconds
    return shorter + repeats * (longer - shorter)


def _peaks(schedule: Schedule, costs: Sequence[StageCosts]) -> tuple[float, ...]:
    """The most bytes of activations of each rank at a time; the order alone says it."""
    columns = schedule.columns
    held = np.array([cost.activation_bytes for cost in costs])[columns.stage]
    ends = columns.is_kind(Kind.BACKWARD, Kind.WEIGHT_BACKWARD)
    starts = columns.is_kind(Kind.FORWARD)
    change = np.where(starts, held, np.where(ends, -held, 0.0))
    bounds = zip(columns.starts, columns.starts[1:], strict=False)
    return tuple(float(np.cumsum(change[first:end]).max(initial=0.0)) for first, end in bounds)
