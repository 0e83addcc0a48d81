"""`diaulos simulate`: when each rank does what, of a plan or of equal stages for learning."""

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from diaulos.cli.output import make_console, note, print_json
from diaulos.clusters.files import read_cluster
from diaulos.documents import write_text
from diaulos.errors import InputError
from diaulos.planning.evaluate import fits
from diaulos.planning.files import read_plan
from diaulos.reporting.summary import (
    ScheduleSummary,
    counted_versions,
    summarise,
    summary_document,
    summary_table,
)
from diaulos.reporting.svg import comparison_svg, schedule_svg
from diaulos.reporting.trace import write_trace
from diaulos.schedules.check import check
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.schedule import PipelineShape, Schedule, format_actions
from diaulos.schedules.simulate import Link, StageCosts, plan_costs
from diaulos.schedules.simulate import simulate as run_schedule
from diaulos.schedules.timeline import Timeline, read_timeline
from diaulos.units import format_bytes

ScheduleName = Literal["gpipe", "1f1b", "2bw", "all"]
_BATCHES = 4


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """What is simulated, whatever it comes from."""

    shape: PipelineShape
    costs: Sequence[StageCosts]
    link: Link
    memory_bytes: float = math.inf
    """Of each device."""


@dataclass(frozen=True, slots=True)
class _Run:
    schedule: Schedule
    timeline: Timeline


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
    schedule: Annotated[list[ScheduleName] | None, Parameter(negative=())] = None,
    batches: int | None = None,
    measured: Path | None = None,
    svg: Path | None = None,
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
    schedule
        Which to simulate; may be given several times. All if absent.
    batches
        How many batches; as many as were measured, or 4.
    measured
        The measured timeline of a run of the plan, JSON, to be laid beside the simulated one.
    svg
        Where to draw the schedules.
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
    if plan is None:
        _refuse_without_plan(graph=graph, cluster=cluster)
        pipeline = _equal_stages(depth, microbatches, width, (forward, backward))
    else:
        _refuse_beside_plan(
            depth=depth, microbatches=microbatches, width=width, forward=forward, backward=backward
        )
        pipeline = _planned(plan, graph, cluster)
    if batches is None:
        batches = _BATCHES if ran is None else len(ran.batch_ends_seconds)
    runs = _simulate_all(pipeline, schedule or ["all"], batches)
    if ran is not None and len(runs) > 1:
        raise InputError(
            "--measured is given beside several schedules",
            "a run is laid beside the one schedule that it followed",
            "for example --schedule 2bw",
        )
    _write(runs, ran, svg=svg, until=until, trace=trace)
    _print(runs, ran, as_text=as_text, as_json=as_json)
    _note_what_does_not_fit(runs, pipeline.memory_bytes)


def _equal_stages(
    depth: int | None,
    microbatches: int | None,
    width: int | None,
    seconds: tuple[float | None, float | None],
) -> _Pipeline:
    if depth is None or microbatches is None:
        raise InputError(
            "there is neither a plan nor --depth with --microbatches",
            "one of them says what to simulate",
            "for example diaulos simulate --depth 4 --microbatches 8",
        )
    width = 1 if width is None else width
    for name, value in (("depth", depth), ("microbatches", microbatches), ("width", width)):
        if value < 1:
            raise InputError(f"--{name} is {value}", "it must be at least 1")
    forward, backward = seconds
    cost = StageCosts(
        forward_seconds=1.0 if forward is None else forward,
        backward_seconds=2.0 if backward is None else backward,
    )
    shape = PipelineShape(replicas=(width,) * depth, microbatches=microbatches * width)
    return _Pipeline(shape, [cost] * depth, Link())


def _refuse_beside_plan(**flags: float | None) -> None:
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"--{name} is given beside a plan", "the plan says what to simulate")


def _refuse_without_plan(**flags: Path | None) -> None:
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"--{name} is given without a plan", "the plan file comes first")


def _planned(path: Path, graph: Path | None, cluster: Path | None) -> _Pipeline:
    given = None if cluster is None else read_cluster(cluster)
    stored = read_plan(path, graph_path=graph, cluster=given).checked()
    if not stored.graph_is_unchanged:
        note(f"{stored.graph_path} is not the graph that the plan was made from")
    if not all(option.is_split for option in stored.plan_options()):
        note(
            "forward and backward were not measured apart: the backward counts as twice the forward"
        )
    costs = plan_costs(stored.graph, stored.plan, stored.cluster)
    shape, link = PipelineShape.of(stored.plan), Link.of(stored.cluster)
    return _Pipeline(shape, costs, link, stored.cluster.largest_memory_bytes)


def _simulate_all(pipeline: _Pipeline, names: Sequence[str], batches: int) -> dict[str, _Run]:
    """The runs by schedule; what only `all` asked for and cannot run is noted and left out."""
    runs = {}
    for name in dict.fromkeys(GENERATORS if "all" in names else names):
        try:
            schedule = generate(name, pipeline.shape, batches)
        except InputError as error:
            if name in names or batches < 1:
                raise
            note(f"{name} is left out: {error}")
            continue
        check(schedule)
        runs[name] = _Run(schedule, run_schedule(schedule, pipeline.costs, pipeline.link))
    return runs


def _note_what_does_not_fit(runs: Mapping[str, _Run], memory_bytes: float) -> None:
    for name, run in runs.items():
        peaks = summarise(run.timeline, run.schedule.weight_versions).peak_memory_bytes
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
    until: float | None,
    trace: Path | None,
) -> None:
    """The files that were asked for."""
    timelines = [run.timeline for run in runs.values()]
    command = shlex.join(["diaulos", *sys.argv[1:]])
    if svg is not None:
        picture = (
            schedule_svg(timelines, until_seconds=until, made_by=command)
            if ran is None
            else comparison_svg(timelines[0], ran, until_seconds=until, made_by=command)
        )
        write_text(svg, picture)
        note(f"wrote {svg}")
    if trace is not None:
        titles = list(runs) if ran is None else ["planned", "measured"]
        write_trace(trace, timelines if ran is None else [*timelines, ran], titles)
        note(f"wrote {trace}")


def _print(runs: Mapping[str, _Run], ran: Timeline | None, *, as_text: bool, as_json: bool) -> None:
    """The actions, the document or the table."""
    if as_text:
        for name, run in runs.items():
            heading = f"{name}\n" if len(runs) > 1 else ""
            sys.stdout.write(heading + format_actions(run.schedule))
        return
    summaries = {
        name: summarise(run.timeline, run.schedule.weight_versions) for name, run in runs.items()
    }
    if ran is not None:
        summaries["measured"] = summarise(ran, counted_versions(ran))
    if as_json:
        document = _document([run.schedule for run in runs.values()], summaries)
        print_json(document)
    else:
        make_console().print(summary_table(summaries))


def _document(
    schedules: Sequence[Schedule], summaries: Mapping[str, ScheduleSummary]
) -> dict[str, object]:
    shape = schedules[0].shape
    return {
        "replicas": list(shape.replicas),
        "microbatches": shape.microbatches,
        "batches": schedules[0].batches,
        "schedules": {name: summary_document(summary) for name, summary in summaries.items()},
    }
