"""The schedules that `diaulos simulate` was asked for, each made, checked and simulated."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from diaulos.cli.output import note
from diaulos.cli.pipeline import Pipeline
from diaulos.errors import InputError
from diaulos.schedules.check import check
from diaulos.schedules.costs import StageCosts, chunk_costs
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.order_search.exact_order import proven
from diaulos.schedules.order_search.search import search
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.simulate import Simulator
from diaulos.schedules.timeline import Timeline
from diaulos.units import format_seconds

_SOLVER_EFFORT = 60.0
"""In seconds of the solver's own clock."""
_FEW_BATCHES = 4
_MANY = 200_000
"""Forwards of a batch: with more, further batches that only repeat the first are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """How `--schedule auto` searches."""

    in_flight_limit: int | None
    prove: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated schedule."""

    schedule: Schedule
    simulator: Simulator
    costs: Sequence[StageCosts]
    timeline: Timeline
    lower_bound_seconds: float | None
    """What no schedule can be better than, where one was searched for."""


@contextmanager
def without_collection() -> Iterator[None]:
    """Looking for garbage among millions of actions, none of them, takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def refuse_without_use(names: Sequence[str], chunks: int | None, flags: SearchFlags) -> None:
    """Raise where a flag is given that none of these schedules goes by."""
    if "all" in names or "auto" in names:
        return
    for flag, is_given in (
        ("--in-flight-limit", flags.in_flight_limit is not None),
        ("--prove", flags.prove),
    ):
        if is_given:
            raise InputError(
                f"{flag} is given with {', '.join(names)}",
                "only the order of --schedule auto is searched for",
                "add --schedule auto",
            )
    known = {GENERATORS[name].chunks for name in names}
    if chunks is not None and None not in known and chunks not in known:
        raise InputError(
            f"--chunks is {chunks} with {', '.join(names)}",
            "how many stages a rank has is fixed for these schedules",
            "interleaved and breadth-first take any number",
        )


def usual_batches(pipeline: Pipeline, names: Sequence[str]) -> int:
    """How many batches tell what there is to see: one of many actions, where batches are apart."""
    shape = pipeline.shape
    computations = shape.microbatches * len(shape.replicas) * (pipeline.chunks or 1)
    apart = all(name in GENERATORS and GENERATORS[name].flushes for name in names)
    return 1 if apart and computations > _MANY else _FEW_BATCHES


def simulate_all(
    pipeline: Pipeline, names: Sequence[str], batches: int, flags: SearchFlags
) -> dict[str, Run]:
    """The runs by schedule; what only `all` asked for and cannot run is noted and left out."""
    runs: dict[str, Run] = {}
    left_out: dict[str, list[str]] = {}
    for name in dict.fromkeys([*GENERATORS, "auto"] if "all" in names else names):
        try:
            runs[name] = (
                _search(pipeline, batches, flags)
                if name == "auto"
                else _simulate_one(pipeline, name, batches)
            )
        except InputError as error:
            if name in names or batches < 1:
                raise
            left_out.setdefault(str(error), []).append(name)
    for reason, left in left_out.items():
        note(f"{', '.join(left)} left out: {reason}")
    return runs


def _simulate_one(pipeline: Pipeline, name: str, batches: int) -> Run:
    generator = GENERATORS[name]
    if generator.chunks != 1 and pipeline.chunks is None:
        raise InputError(
            "the plan has one stage a rank",
            "schedules of several are for stages that can be cut",
            "simulate them with --depth, --microbatches and --chunks",
        )
    schedule = generate(name, generator.shape(pipeline.shape, pipeline.chunks or 1), batches)
    return _timed(pipeline, schedule)


def _search(pipeline: Pipeline, batches: int, flags: SearchFlags) -> Run:
    shape, costs, links = pipeline.shape, pipeline.costs, pipeline.links
    limit = shape.depth if flags.in_flight_limit is None else flags.in_flight_limit
    if limit < 1:
        raise InputError(f"--in-flight-limit is {limit}", "it must be at least 1")
    if flags.prove and pipeline.chunks not in (None, 1):
        raise InputError(
            f"--prove is given where stages may be cut in {pipeline.chunks}",
            "only orders of one stage a rank can be proven the best",
            "add --chunks 1",
        )
    limits = [limit] * shape.depth
    found = search(shape, range(batches), costs, links, limits, chunks=pipeline.chunks)
    if flags.prove:
        found = proven(
            found, shape, range(batches), costs, links, limits=limits, effort=_SOLVER_EFFORT
        )
    run = _timed(pipeline, found.schedule, found.lower_bound_seconds)
    if flags.prove:
        note(
            f"auto takes {format_seconds(run.timeline.makespan_seconds)}; no order of whole stages "
            f"takes less than {format_seconds(found.lower_bound_seconds)}"
        )
    return run


def _timed(pipeline: Pipeline, schedule: Schedule, bound: float | None = None) -> Run:
    simulator = Simulator(schedule, check(schedule))
    costs = chunk_costs(schedule.shape, pipeline.costs)
    timeline = simulator.timeline(costs, pipeline.links)
    # A batch is the same work for all, also where each of its microbatches makes an update.
    timeline = replace(timeline, microbatches=pipeline.shape.microbatches)
    return Run(schedule, simulator, costs, timeline, bound)
