"""How pictures, traces and tables call schedules, stages and ranks."""

from collections.abc import Mapping
from types import MappingProxyType

from diaulos.schedules.timeline import Timeline

SCHEDULE_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "gpipe": "GPipe: all forwards, then all backwards",
        "1f1b": "1F1B: one forward, one backward, and a flush after each batch",
        "2bw": "2BW: two weight versions, never flushed",
    }
)
"""What distinguishes each schedule, by its name."""


def schedule_title(name: str) -> str:
    """The title of a timeline of this name; names that are not a schedule's stay as they are."""
    return SCHEDULE_TITLES.get(name, name)


def ranks_by_stage(timeline: Timeline) -> tuple[tuple[int, ...], ...]:
    """The ranks that hold each stage, replica by replica, as their events tell."""
    ranks: dict[int, list[int]] = {}
    for rank in range(timeline.ranks):
        events = timeline.of_rank(rank)
        if events:
            ranks.setdefault(events[0].action.stage, []).append(rank)
    return tuple(tuple(ranks[stage]) for stage in sorted(ranks))


def rank_labels(timeline: Timeline) -> dict[int, str]:
    """`stage 0` where a stage has one rank, else `stage 0, replica 1`, by rank."""
    labels = {}
    for ranks in ranks_by_stage(timeline):
        for replica, rank in enumerate(ranks):
            stage = timeline.of_rank(rank)[0].action.stage
            suffix = f", replica {replica}" if len(ranks) > 1 else ""
            labels[rank] = f"stage {stage}{suffix}"
    return labels
