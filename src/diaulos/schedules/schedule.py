"""The schedule: one list of actions per rank, and the promises that it keeps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, parse_action
from diaulos.schedules.columnar.columns import Columns, Numbers, partners
from diaulos.schedules.columnar.rows import Rows
from diaulos.schedules.shape import PipelineShape


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What every rank does, in order, over `batches` batches.

    The law of the weight versions: on a stage whose gradients come d updates late, batch t computes
    with version max(t - d, 0), so d + 1 versions are kept.
    """

    name: str
    shape: PipelineShape
    """Its batches are what one update consumes."""
    first_batch: int
    batches: int
    gradient_delays: tuple[int, ...]
    """Of each stage: 0 where every batch sees the newest weights, 1 for 2BW."""
    updates_stage_by_stage: bool = False
    """Whether an update waits for the gradients of its own stage alone; else for those of all
    stages, whose norm it needs."""
    in_flight_limits: tuple[int, ...]
    """By position, the most pairs of stage and microbatch that a rank has between forward and the
    end of the backward."""
    actions: Sequence[tuple[Action, ...]]
    """By rank."""

    @property
    def weight_versions(self) -> tuple[int, ...]:
        """The most weight versions that are kept of each stage."""
        return tuple(delay + 1 for delay in self.gradient_delays)

    @property
    def batch_numbers(self) -> range:
        """The batches of this schedule."""
        return range(self.first_batch, self.first_batch + self.batches)

    @property
    def microbatch_numbers(self) -> range:
        """The microbatches of this schedule, over all replicas."""
        batches, each = self.batch_numbers, self.shape.microbatches
        return range(batches.start * each, batches.stop * each)

    def version_of(self, stage: int, microbatch: int) -> int:
        """The weight version that a stage computes a microbatch with, forward and backward."""
        return max(microbatch // self.shape.microbatches - self.gradient_delays[stage], 0)

    @property
    def is_flushed(self) -> bool:
        """Whether nothing is in flight between batches, so that each sees the newest weights."""
        return not any(self.gradient_delays) and not self.updates_stage_by_stage

    @cached_property
    def columns(self) -> Columns:
        """The actions of all ranks as columns of numbers."""
        given = self.actions
        return given.columns if isinstance(given, Rows) else Columns.of(given)

    @cached_property
    def partners(self) -> Numbers:
        """For each action of the columns the other end of its message, or `NO_PARTNER`."""
        return partners(self.columns, self.shape.stages, self.microbatch_numbers)


def format_actions(schedule: Schedule) -> str:
    """The actions as text: one row per rank, separated by commas."""
    return "".join(",".join(map(str, row)) + "\n" for row in schedule.actions)


def parse_actions(text: str) -> tuple[tuple[Action, ...], ...]:
    """The rows of actions of a text that `format_actions` could have written."""
    return tuple(_parse_row(row, number) for number, row in enumerate(text.splitlines()))


def _parse_row(row: str, number: int) -> tuple[Action, ...]:
    cells: Iterable[str] = row.split(",") if row else ()
    try:
        return tuple(parse_action(cell) for cell in cells)
    except InputError as error:
        raise error.at(f"row {number}") from None
