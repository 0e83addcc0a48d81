"""`diaulos simulate`: when each rank does what, of a plan or of equal stages for learning."""

import gc
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from diaulos.cli.output import make_console, note, print_json
from diaulos.cli.pipeline import (
    EqualStages,
    Pipeline,
    equal_stages,
    planned,
    refuse_beside_plan,
    refuse_without_plan,
)
from diaulos.documents import write_text
from diaulos.errors import InputError
from diaulos.planning.evaluate import fits
from diaulos.reporting.page import schedule_page
from diaulos.reporting.summary import (
    ScheduleSummary,
    counted_versions,
    summarise,
    summary_document,
    summary_table,
)
from diaulos.reporting.svg import comparison_svg, schedule_svg
from diaulos.reporting.trace import write_trace
from diaulos.schedules.bubbles import bubble_by_cause
from diaulos.schedules.check import check
from diaulos.schedules.costs import Links, StageCosts, chunk_costs
from diaulos.schedules.endless import update_slack
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.schedule import Schedule, format_actions
from diaulos.schedules.search import search
from diaulos.schedules.simulate import Simulator
from diaulos.schedules.timeline import Timeline, read_timeline
from diaulos.units import format_bytes

ScheduleName = Literal[
    "gpipe",
    "1f1b",
    "interleaved",
    "breadth-first",
    "2bw",
    "pipedream",
    "pipedream-vertical",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "dualpipe-v",
    "auto",
    "all",
]
_BATCHES = 4


@dataclass(frozen=True, slots=True)
class _Run:
    schedule: Schedule
    simulator: Simulator
    costs: Sequence[StageCosts]
    timeline: Timeline
    lower_bound_seconds: float | None
    """What no schedule can be better than, where one was searched for."""


def simulate(
    plan: Path | None = None,
    *,
    graph: Path | None = None,
    cluster: Path | None = None,
    depth: int | None = None,
    microbatches: int | None = None,
    width: int | None = None,
    forward: float | None = None,
    backward: float | None = None,
    backward_input: float | None = None,
    backward_weight: float | None = None,
    chunks: int | None = None,
    in_flight_limit: int | None = None,
    schedule: Annotated[list[ScheduleName] | None, Parameter(negative=())] = None,
    batches: int | None = None,
    measured: Path | None = None,
    svg: Path | None = None,
    html: Path | None = None,
    until: float | None = None,
    trace: Path | None = None,
    as_text: Annotated[bool, Parameter(name="--text", negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Simulate schedules: step time, bubble, microbatches in flight, weight versions, memory.

    Either of a plan, or without one, for learning, of `--depth` equal stages.

    Parameters
    ----------
    plan
        The plan file, JSON.
    graph
        The layer graph, where it is no longer at the place that the plan names.
    cluster
        Another cluster than the one that the plan was made for, TOML.
    depth
        Stages, where there is no plan.
    microbatches
        Of one batch on each replica, where there is no plan.
    width
        Replicas of each stage, where there is no plan; 1 if absent.
    forward
        Seconds of a microbatch's forward on a stage, where there is no plan; 1 if absent.
    backward
        Seconds of its backward; 2 if absent.
    backward_input
        Seconds of the half of the backward that gives the gradient of the input; given together
        with the other half, instead of --backward. Half of the backward if absent.
    backward_weight
        Seconds of the half that gives the gradients of the weights.
    chunks
        Into how many stages interleaved and breadth-first schedules cut what a rank holds; 2 if
        absent. Forward and backward seconds are those of all of them.
    in_flight_limit
        The most microbatches that a rank may hold between forward and the end of the backward in
        the order that `--schedule auto` searches for; the number of stages if absent, as much as
        1F1B needs on the first.
    schedule
        Which to simulate; may be given several times. All if absent.
    batches
        How many batches; as many as were measured, or 4.
    measured
        The measured timeline of a run of the plan, JSON, to be laid beside the simulated one.
    svg
        Where to draw the schedules.
    html
        Where to write a page of them to zoom into, with what each rank holds over time.
    until
        Seconds that the picture shows; as much as stays readable if absent.
    trace
        Where to write a trace for ui.perfetto.dev.
    as_text
        Print the actions of every rank instead of the table.
    as_json
        Print one JSON object instead of the table.

    """
    ran = None if measured is None else read_timeline(measured)
    equal = EqualStages(
        depth=depth,
        microbatches=microbatches,
        width=width,
        forward=forward,
        backward=backward,
        backward_input=backward_input,
        backward_weight=backward_weight,
        chunks=chunks,
    )
    if plan is None:
        refuse_without_plan(graph=graph, cluster=cluster)
        pipeline = equal_stages(equal)
    else:
        refuse_beside_plan(equal)
        pipeline = planned(plan, graph, cluster)
    if batches is None:
        batches = _BATCHES if ran is None else len(ran.batch_ends_seconds)
    with _without_collection():
        runs = _simulate_all(pipeline, schedule or ["all"], batches, in_flight_limit)
    if ran is not None and len(runs) > 1:
        raise InputError(
            "--measured is given beside several schedules",
            "a run is laid beside the one schedule that it followed",
            "for example --schedule 2bw",
        )
    _write(
        runs,
        ran,
        svg=svg,
        html=html,
        until=until,
        trace=trace,
        memory_limit_bytes=pipeline.memory_bytes,
    )
    if as_text:
        _print_actions(runs)
        return
    summaries = {
        name: summarise(run.timeline, run.schedule.weight_versions) for name, run in runs.items()
    }
    _note_what_does_not_fit(summaries, pipeline.memory_bytes)
    if ran is not None:
        summaries["measured"] = summarise(ran, counted_versions(ran))
    if as_json:
        print_json(_document(runs, summaries, pipeline.links))
    else:
        make_console().print(summary_table(summaries))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Looking for garbage among millions of actions, none of them, takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _simulate_all(
    pipeline: Pipeline, names: Sequence[str], batches: int, in_flight_limit: int | None
) -> dict[str, _Run]:
    """The runs by schedule; what only `all` asked for and cannot run is noted and left out."""
    runs: dict[str, _Run] = {}
    left_out: dict[str, list[str]] = {}
    for name in dict.fromkeys([*GENERATORS, "auto"] if "all" in names else names):
        try:
            runs[name] = (
                _search(pipeline, batches, in_flight_limit)
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


def _simulate_one(pipeline: Pipeline, name: str, batches: int) -> _Run:
    generator = GENERATORS[name]
    if generator.chunks != 1 and pipeline.chunks is None:
        raise InputError(
            "the plan has one stage a rank",
            "schedules of several are for stages that can be cut",
            "simulate them with --depth, --microbatches and --chunks",
        )
    schedule = generate(name, generator.shape(pipeline.shape, pipeline.chunks or 1), batches)
    return _timed(pipeline, schedule)


def _search(pipeline: Pipeline, batches: int, in_flight_limit: int | None) -> _Run:
    shape = pipeline.shape
    limit = shape.depth if in_flight_limit is None else in_flight_limit
    if limit < 1:
        raise InputError(f"--in-flight-limit is {limit}", "it must be at least 1")
    found = search(
        shape,
        range(batches),
        pipeline.costs,
        pipeline.links,
        [limit] * shape.depth,
        chunks=pipeline.chunks,
    )
    return _timed(pipeline, found.schedule, found.lower_bound_seconds)


def _timed(pipeline: Pipeline, schedule: Schedule, bound: float | None = None) -> _Run:
    simulator = Simulator(schedule, check(schedule))
    costs = chunk_costs(schedule.shape, pipeline.costs)
    timeline = simulator.timeline(costs, pipeline.links)
    # A batch is the same work for all, also where each of its microbatches makes an update.
    timeline = replace(timeline, microbatches=pipeline.shape.microbatches)
    return _Run(schedule, simulator, costs, timeline, bound)


def _note_what_does_not_fit(summaries: Mapping[str, ScheduleSummary], memory_bytes: float) -> None:
    for name, summary in summaries.items():
        peaks = summary.peak_memory_bytes
        over = [stage for stage, peak in enumerate(peaks) if not fits(peak, memory_bytes)]
        if over:
            worst = max(over, key=lambda stage: peaks[stage])
            note(
                f"{name} does not fit into {format_bytes(memory_bytes)}: stage {worst} holds "
                f"{format_bytes(peaks[worst])} at its peak; too much on stages {over}"
            )


def _write(
    runs: Mapping[str, _Run],
    ran: Timeline | None,
    *,
    svg: Path | None,
    html: Path | None,
    until: float | None,
    trace: Path | None,
    memory_limit_bytes: float,
) -> None:
    """The files that were asked for."""
    planned = [run.timeline for run in runs.values()]
    timelines = planned if ran is None else [*planned, ran]
    command = shlex.join(["diaulos", *sys.argv[1:]])
    if svg is not None:
        picture = (
            schedule_svg(timelines, until_seconds=until, made_by=command)
            if ran is None
            else comparison_svg(planned[0], ran, until_seconds=until, made_by=command)
        )
        _write_one(svg, picture)
    if html is not None:
        page = schedule_page(
            timelines,
            titles=None if ran is None else [f"{name} planned" for name in runs] + ["measured"],
            memory_limit_bytes=memory_limit_bytes,
            made_by=command,
        )
        _write_one(html, page)
    if trace is not None:
        write_trace(trace, timelines, list(runs) if ran is None else ["planned", "measured"])
        note(f"wrote {trace}")


def _write_one(path: Path, text: str) -> None:
    write_text(path, text)
    note(f"wrote {path}")


def _print_actions(runs: Mapping[str, _Run]) -> None:
    for name, run in runs.items():
        heading = f"{name}\n" if len(runs) > 1 else ""
        sys.stdout.write(heading + format_actions(run.schedule))


def _document(
    runs: Mapping[str, _Run], summaries: Mapping[str, ScheduleSummary], links: Links
) -> dict[str, object]:
    entries = {name: summary_document(summary) for name, summary in summaries.items()}
    for name, run in runs.items():
        entries[name] |= _details(run, links)
    first = next(iter(runs.values()))
    shape = first.schedule.shape
    return {
        "replicas": list(shape.replicas),
        "microbatches": first.timeline.microbatches,
        "batches": len(first.timeline.batch_ends_seconds),
        "schedules": entries,
    }


def _details(run: _Run, links: Links) -> dict[str, object]:
    """What only a simulated run has."""
    schedule, timeline = run.schedule, run.timeline
    bubble = bubble_by_cause(run.simulator, run.costs, links, timeline)
    details: dict[str, object] = {
        "stages_per_rank": schedule.shape.chunks,
        "bubble_by_cause": asdict(bubble),
        "busy_seconds": [timeline.busy_seconds(rank) for rank in range(timeline.ranks)],
    }
    if run.lower_bound_seconds is not None:
        details["lower_bound_seconds"] = run.lower_bound_seconds
    if schedule.name == "2bw":
        details["update_slack"] = list(update_slack(schedule.shape))
    if timeline.resident:
        peaks = [timeline.peak_memory(rank) for rank in range(timeline.ranks)]
        details["memory_peaks"] = [asdict(peak) for peak in peaks]
    return details
