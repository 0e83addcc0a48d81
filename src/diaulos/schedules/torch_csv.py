"""Schedules in the CSV of torch's pipelining: one row a rank, one computation a cell.

torch's `_PipelineScheduleRuntime`, torchtitan and NeMo load it. It knows one batch, flushed, and
one rank of each position; a cell that is empty is an idle step.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind, parse_action
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import completed, flushed_law
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape

_OVERLAP = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
"""A forward and a backward that torch may run at once; here they follow each other."""


def format_torch_csv(schedule: Schedule) -> str:
    """The computations of a schedule of one flushed batch as torch's CSV."""
    if max(schedule.shape.replicas) > 1:
        raise InputError(
            f"the stages have {schedule.shape.replicas} replicas",
            "torch's CSV has one rank of each",
            "write the schedule of one replica",
        )
    if not schedule.is_flushed or schedule.batches > 1:
        raise InputError(
            f"schedule {schedule.name!r} has {schedule.batches} batches"
            + ("" if schedule.is_flushed else " and does not flush"),
            "torch's CSV is one batch with a flush at its end",
            "generate one batch of a schedule that flushes",
        )
    first = schedule.microbatch_numbers.start
    rows = (
        [f"{a.stage}{a.kind.value}{a.number - first}" for a in row if a.kind.is_compute]
        for row in schedule.actions
    )
    return "".join(",".join(row) + "\n" for row in rows)


def parse_torch_csv(text: str, name: str) -> Schedule:
    """The schedule of torch's CSV, with all that follows from its computations; to be checked.

    What it promises to have in flight at most is what it has.
    """
    rows = [list(_cells(line, number)) for number, line in enumerate(text.splitlines())]
    shape = _shape(rows)
    limits = [_peak_in_flight(row) for row in rows]
    orders: list[list[Step]] = [[(a.kind, a.stage, a.number) for a in row] for row in rows]
    return completed(flushed_law(name, shape, range(1), limits), orders)


def _cells(line: str, number: int) -> Iterator[Action]:
    unpacked = _OVERLAP.sub(lambda match: match[1].replace(";", ","), line)
    for cell in filter(None, map(str.strip, unpacked.split(","))):
        try:
            action = parse_action(cell)
        except InputError as error:
            raise error.at(f"row {number}") from None
        if not action.kind.is_compute or action.version is not None:
            raise InputError(
                f"{cell!r} is not a computation",
                "torch's CSV of computations has F, B, I and W, such as 2F0",
                "write it before torch adds its sends and receives",
                where=f"row {number}",
            )
        yield action


def _shape(rows: Sequence[Sequence[Action]]) -> PipelineShape:
    """The shape whose ranks hold the stages of the rows: looped, or in a V."""
    held = [tuple(sorted({action.stage for action in row})) for row in rows]
    if not all(held):
        raise InputError("a row has no computations", "each rank holds at least one stage")
    microbatches = 1 + max(action.number for row in rows for action in row)
    looped = PipelineShape(
        replicas=(1,) * len(rows), microbatches=microbatches, chunks=len(held[0])
    )
    for shape in (looped, replace(looped, folded=True)):
        if [shape.stages_of(rank) for rank in range(shape.ranks)] == held:
            return shape
    raise InputError(
        f"the rows hold the stages {', '.join(str(list(stages)) for stages in held)}",
        "stages stand on ranks as a loop (rank = stage mod ranks) or as a V, as many on each rank",
    )


def _peak_in_flight(row: Sequence[Action]) -> int:
    count = peak = 0
    for action in row:
        count += (action.kind is Kind.FORWARD) - action.kind.ends_backward
        peak = max(peak, count)
    return peak
