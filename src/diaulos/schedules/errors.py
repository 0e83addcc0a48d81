"""The error of a schedule that breaks a rule, which shows the wrong action in its place."""

from diaulos.errors import CheckError
from diaulos.schedules.schedule import Schedule

_RANKS_SHOWN = 3
"""On either side of the wrong one."""
_STEPS_SHOWN = 4
"""On either side of the wrong one."""


class ScheduleError(CheckError):
    """A schedule breaks a rule; the message names the first wrong action and shows it in place."""

    def __init__(self, schedule: Schedule, rank: int, index: int, problem: str) -> None:
        self.rank, self.index = rank, index
        row = schedule.actions[rank]
        self.action = row[index] if index < len(row) else None
        name = f"action {index}, {self.action}" if self.action else "the end of its actions"
        super().__init__(
            f"schedule {schedule.name!r}, rank {rank}, {name}: {problem}\n"
            + marked_table(schedule, rank, index)
        )


def marked_table(schedule: Schedule, rank: int, index: int) -> str:
    """The actions around one, rank by step, with `>>` and `<<` at it."""
    ranks = range(max(rank - _RANKS_SHOWN, 0), min(rank + _RANKS_SHOWN + 1, len(schedule.actions)))
    steps = range(max(index - _STEPS_SHOWN, 0), index + _STEPS_SHOWN + 1)
    table = [["step", *map(str, steps)]]
    for shown in ranks:
        row = schedule.actions[shown]
        cells = [str(row[step]) if step < len(row) else "" for step in steps]
        if shown == rank:
            cells[index - steps.start] = f">>{cells[index - steps.start] or '(end)'}<<"
        table.append([f"rank {shown}", *cells])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(f"  {line.rstrip()}" for line in lines)
