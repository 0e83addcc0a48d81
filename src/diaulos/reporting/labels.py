"""How pictures, traces and tables call schedules, stages and ranks."""

from collections.abc import Mapping
from types import MappingProxyType

from diaulos.schedules.timeline import Timeline

SCHEDULE_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "gpipe": "GPipe: all forwards, then all backwards",
        "1f1b": "1F1B: one forward, one backward, and a flush after each batch",
        "interleaved": "Interleaved 1F1B: several stages a rank, one forward, one backward",
        "breadth-first": "Breadth-first: several stages a rank, all microbatches through each",
        "2bw": "2BW: two weight versions, never flushed",
        "pipedream": "PipeDream: an update after every backward, weights stashed",
        "pipedream-vertical": "PipeDream with vertical sync: one version on all stages",
        "zb-h1": "ZB-H1: weight halves of backwards fill the bubble",
        "zb-h2": "ZB-H2: twice the warm-up, no bubble after the first forward",
        "zb-v": "ZB-V: two stages a rank in a V, weight halves fill the bubble",
        "dualpipe-v": "DualPipe-V: two stages a rank in a V, forwards beside backwards",
        "auto": "Auto: the best order found within the in-flight limit",
    }
)
"""What distinguishes each schedule, by its name."""


def schedule_title(name: str) -> str:
    """The title of a timeline of this name; names that are not a schedule's stay as they are."""
    return SCHEDULE_TITLES.get(name, name)


def ranks_by_stage(timeline: Timeline) -> tuple[tuple[int, ...], ...]:
    """The ranks that hold each stage, replica by replica, as their events tell.

    Where ranks hold several stages, those of each first one.
    """
    ranks: dict[int, list[int]] = {}
    for rank in range(timeline.ranks):
        if timeline.stages_of(rank):
            ranks.setdefault(timeline.stages_of(rank)[0], []).append(rank)
    return tuple(tuple(ranks[stage]) for stage in sorted(ranks))


def rank_labels(timeline: Timeline) -> dict[int, str]:
    """`stage 0` where a stage has one rank, else `stage 0, replica 1`, by rank.

    `stages 0, 7` where a rank holds several.
    """
    labels = {}
    for ranks in ranks_by_stage(timeline):
        for replica, rank in enumerate(ranks):
            stages = timeline.stages_of(rank)
            named = "stage " if len(stages) == 1 else "stages "
            suffix = f", replica {replica}" if len(ranks) > 1 else ""
            labels[rank] = named + ", ".join(map(str, stages)) + suffix
    return labels
