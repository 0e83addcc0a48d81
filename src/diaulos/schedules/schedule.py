"""The schedule: one list of actions per rank, and the promises that it keeps."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from diaulos.errors import InputError
from diaulos.planning.plan import Plan
from diaulos.schedules.actions import Action, parse_action


@dataclass(frozen=True, kw_only=True)
class PipelineShape:
    """Stages with their replicas, and the microbatches of a batch.

    Ranks are numbered stage by stage, replicas within a stage side by side. Microbatch j of a
    batch runs on replica j mod d of each stage.
    """

    replicas: tuple[int, ...]
    """The data-parallel degree of each stage, input end first."""
    microbatches: int
    """Of one batch, over all replicas."""

    def __post_init__(self) -> None:
        if not self.replicas or min(self.replicas) < 1:
            raise InputError(f"replicas is {self.replicas}", "each stage has at least one replica")
        if self.microbatches < 1:
            raise InputError(f"microbatches is {self.microbatches}", "it must be at least 1")
        for stage, degree in enumerate(self.replicas):
            if self.microbatches % degree:
                raise InputError(
                    f"microbatches is {self.microbatches} and stage {stage} has {degree} replicas",
                    "the replicas of each stage share the microbatches of a batch evenly",
                    f"{-(-self.microbatches // degree) * degree} microbatches would do",
                )

    @staticmethod
    def of(plan: Plan) -> "PipelineShape":
        """The shape of a plan."""
        replicas = tuple(stage.data_parallel for stage in plan.stages)
        return PipelineShape(replicas=replicas, microbatches=plan.microbatches)

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.replicas)

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return sum(self.replicas)

    @cached_property
    def _places(self) -> tuple[tuple[int, int], ...]:
        return tuple((s, r) for s, degree in enumerate(self.replicas) for r in range(degree))

    @cached_property
    def _ranks_by_stage(self) -> tuple[range, ...]:
        ends = itertools.accumulate(self.replicas)
        return tuple(range(end - d, end) for end, d in zip(ends, self.replicas, strict=True))

    def stage_of(self, rank: int) -> int:
        """The stage that a rank holds."""
        return self._places[rank][0]

    def replica_of(self, rank: int) -> int:
        """Which replica of its stage a rank is."""
        return self._places[rank][1]

    def ranks_of(self, stage: int) -> range:
        """The ranks that hold a stage."""
        return self._ranks_by_stage[stage]

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank on which a stage runs a microbatch, counted through all batches."""
        within_batch = microbatch % self.microbatches
        return self.ranks_of(stage)[within_batch % self.replicas[stage]]

    def microbatches_of(self, rank: int, batch: int) -> range:
        """The microbatches of a batch that a rank runs, counted through all batches."""
        stage, replica = self._places[rank]
        first = batch * self.microbatches
        return range(first + replica, first + self.microbatches, self.replicas[stage])

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """Microbatches in flight on a replica of each stage when the pipeline is full.

        ceil(s / d), s being the sum of the degrees of the stage and all later ones; with equal
        degrees that is the depth minus the stage's index.
        """
        later = [sum(self.replicas[stage:]) for stage in range(self.stages)]
        return tuple(-(-total // d) for total, d in zip(later, self.replicas, strict=True))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What every rank does, in order, over `batches` batches.

    The law of the weight versions: batch t computes with version max(t - gradient_delay, 0), so
    gradient_delay + 1 versions are kept.
    """

    name: str
    shape: PipelineShape
    first_batch: int
    batches: int
    gradient_delay: int
    """0 where every batch sees the newest weights, 1 for 2BW."""
    in_flight_limits: tuple[int, ...]
    """The most microbatches that a rank of each stage has between forward and backward."""
    actions: tuple[tuple[Action, ...], ...]
    """By rank."""

    @property
    def weight_versions(self) -> int:
        """The most weight versions that a rank keeps."""
        return self.gradient_delay + 1

    @property
    def batch_numbers(self) -> range:
        """The batches of this schedule."""
        return range(self.first_batch, self.first_batch + self.batches)

    def version_of(self, microbatch: int) -> int:
        """The weight version that a microbatch computes with, forward and backward."""
        return max(microbatch // self.shape.microbatches - self.gradient_delay, 0)


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
