"""`diaulos simulate`: when each rank does what, of a plan or of equal stages for learning."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from diaulos.cli.output import make_console, note, print_json
from diaulos.cli.pipeline import (
    EqualStages,
    equal_stages,
    planned,
    refuse_beside_plan,
    refuse_without_plan,
)
from diaulos.cli.simulations import (
    Run,
    SearchFlags,
    refuse_without_use,
    simulate_all,
    usual_batches,
    without_collection,
)
from diaulos.documents import write_text
from diaulos.errors import InputError
from diaulos.planning.evaluation.evaluate import fits
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
from diaulos.schedules.analysis.bubbles import bubble_by_cause
from diaulos.schedules.costs import Links
from diaulos.schedules.generation.endless import update_slack
from diaulos.schedules.schedule import format_actions
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


def simulate(
    plan: Path | None = None,
    *,
    graph: Path | None = None,
    cluster: str | Path | None = None,
    depth: int | None = None,
    microbatches: int | None = None,
    width: int | None = None,
    forward: float | None = None,
    backward: float | None = None,
    backward_input: float | None = None,
    backward_weight: float | None = None,
    chunks: int | None = None,
    in_flight_limit: int | None = None,
    prove: Annotated[bool, Parameter(negative=())] = False,
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
        Another cluster than the one that the plan was made for: a TOML file, or 4x8xH100-80GB.
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
    prove
        Have OR-tools prove the order of `--schedule auto` the best one, improve it, or raise the
        bound; of one stage a rank.
    schedule
        Which to simulate; may be given several times. All if absent.
    batches
        How many batches; as many as were measured, or 4, or of a large pipeline that flushes 1.
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
        batches = (
            usual_batches(pipeline, schedule or ["all"])
            if ran is None
            else len(ran.batch_ends_seconds)
        )
    flags = SearchFlags(in_flight_limit=in_flight_limit, prove=prove)
    names = schedule or ["all"]
    refuse_without_use(names, chunks, flags)
    with without_collection():
        runs = simulate_all(pipeline, names, batches, flags)
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
    runs: Mapping[str, Run],
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


def _print_actions(runs: Mapping[str, Run]) -> None:
    for name, run in runs.items():
        heading = f"{name}\n" if len(runs) > 1 else ""
        sys.stdout.write(heading + format_actions(run.schedule))


def _document(
    runs: Mapping[str, Run], summaries: Mapping[str, ScheduleSummary], links: Links
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


def _details(run: Run, links: Links) -> dict[str, object]:
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
