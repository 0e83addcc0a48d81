"""What a timeline comes to: one row of a table, one object of a JSON document."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from rich.table import Table

from diaulos.reporting.labels import ranks_by_stage
from diaulos.schedules.actions import Kind
from diaulos.schedules.events import Event
from diaulos.schedules.timeline import Timeline
from diaulos.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSummary:
    """A schedule in numbers."""

    makespan_seconds: float
    """From the first start to the last end."""
    step_seconds: float
    """From the end of one batch to the end of the next."""
    bubble_fraction: float
    """The idle share of all ranks over the whole run, its filling and draining included."""
    step_bubble_fraction: float
    """The idle share of all ranks within a step."""
    peak_in_flight: tuple[float, ...]
    """By stage, or by rank where ranks hold several; of the replica that has most. A microbatch in
    flight on one of v stages of a rank counts as 1/v."""
    weight_versions: tuple[int, ...]
    """The most that are kept of each stage."""
    peak_memory_bytes: tuple[float, ...]
    """By stage, of the replica that holds most; empty where memory is not known."""


def summarise(timeline: Timeline, weight_versions: Sequence[int]) -> ScheduleSummary:
    """A timeline in numbers."""
    stages = ranks_by_stage(timeline)
    memory = [max(map(timeline.peak_memory_bytes, ranks)) for ranks in stages]
    return ScheduleSummary(
        makespan_seconds=timeline.makespan_seconds,
        step_seconds=timeline.step_seconds,
        bubble_fraction=timeline.bubble_fraction,
        step_bubble_fraction=timeline.step_bubble_fraction,
        peak_in_flight=peak_in_flight(timeline),
        weight_versions=tuple(weight_versions),
        peak_memory_bytes=tuple(memory) if any(memory) else (),
    )


def peak_in_flight(timeline: Timeline) -> tuple[float, ...]:
    """The most microbatches in flight on a replica of each stage, or of each rank's stages."""
    return tuple(
        max(_share(timeline.peak_in_flight(rank), len(timeline.stages_of(rank))) for rank in ranks)
        for ranks in ranks_by_stage(timeline)
    )


def numbers_sentence(timeline: Timeline) -> str:
    """The numbers that matter, on one line: step time, its idle share, microbatches in flight."""
    peaks = [str(peak) for peak in peak_in_flight(timeline)]
    in_flight = join_some(peaks if len(set(peaks)) > 1 else peaks[:1])
    return (
        f"step {format_seconds(timeline.step_seconds)}, "
        f"idle {timeline.step_bubble_fraction:.0%} of it; at most {in_flight} in flight"
    )


def _share(count: int, chunks: int) -> float:
    """Whole numbers stay whole."""
    return count // chunks if count % chunks == 0 else count / chunks


def counted_versions(timeline: Timeline) -> tuple[int, ...]:
    """The most weight versions of each stage that are newest or in use on a rank at a time."""
    most: dict[int, int] = {}
    for rank in range(timeline.ranks):
        for stage in timeline.stages_of(rank):
            events = (event for event in timeline.of_rank(rank) if event.action.stage == stage)
            most[stage] = max(_versions_alive(events), most.get(stage, 0))
    return tuple(most[stage] for stage in sorted(most))


def _versions_alive(events: Iterable[Event]) -> int:
    in_flight: dict[int, int | None] = {}
    newest, most = None, 0
    for event in events:
        action = event.action
        if action.kind is Kind.FORWARD:
            in_flight[action.number] = action.version
        elif action.kind.ends_backward:
            in_flight.pop(action.number, None)
        elif action.kind is Kind.UPDATE:
            newest = action.number + 1
        most = max(most, len({newest, *in_flight.values()} - {None}))
    return most


def median_seconds(timeline: Timeline, kind: Kind) -> tuple[float, ...]:
    """How long an action of this kind usually takes, by stage; 0 where a stage has none."""
    found: list[list[float]] = [[] for _ in ranks_by_stage(timeline)]
    for stage, ranks in enumerate(ranks_by_stage(timeline)):
        for rank in ranks:
            found[stage] += [e.seconds for e in timeline.of_rank(rank) if e.action.kind is kind]
    return tuple(median(seconds) if seconds else 0.0 for seconds in found)


def summary_document(summary: ScheduleSummary) -> dict[str, Any]:
    """The JSON of a summary; memory is left out where it is not known."""
    document = {"makespan": summary.makespan_seconds, **asdict(summary)}
    if not summary.peak_memory_bytes:
        del document["peak_memory_bytes"]
    return document


def summary_table(summaries: dict[str, ScheduleSummary]) -> Table:
    """The schedules side by side, one row each."""
    with_memory = any(summary.peak_memory_bytes for summary in summaries.values())
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("schedule", "step", "its bubble", "run", "its bubble", "versions"):
        table.add_column(heading, justify="left" if heading == "schedule" else "right")
    table.add_column("in flight by stage")
    if with_memory:
        table.add_column("peak memory by stage")
    for name, summary in summaries.items():
        cells = [
            name,
            format_seconds(summary.step_seconds),
            f"{summary.step_bubble_fraction:.1%}",
            format_seconds(summary.makespan_seconds),
            f"{summary.bubble_fraction:.1%}",
            _one_or_all(summary.weight_versions),
            join_some((f"{peak:g}" for peak in summary.peak_in_flight), most=8),
        ]
        if with_memory:
            cells.append(join_some(map(format_bytes, summary.peak_memory_bytes), most=8))
        table.add_row(*cells)
    return table


def _one_or_all(counts: Sequence[int]) -> str:
    """One number where all are equal."""
    return join_some(map(str, counts if len(set(counts)) > 1 else counts[:1]), most=4)


def join_some(texts: Iterable[str], most: int = 16) -> str:
    """The texts with commas; of more than `most` the first and the last ones."""
    listed: Sequence[str] = list(texts)
    if len(listed) > most:
        listed = [*listed[: most // 2], "...", *listed[-most // 2 :]]
    return ", ".join(listed)
