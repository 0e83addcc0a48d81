"""Which rank is what: its place along the pipeline, its replica and its shard."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from diaulos.errors import InputError
from diaulos.planning.plan import Plan
from diaulos.schedules.shape import PipelineShape


def shards_of(plan: Plan, shape: PipelineShape) -> tuple[int, ...]:
    """The tensor-parallel degree of each position of a plan's pipeline."""
    degrees = [stage.tensor_parallel for stage in plan.stages]
    for stage, (degree, home) in enumerate(zip(degrees, shape.homes, strict=True)):
        if degree != degrees[home]:
            raise InputError(
                f"stage {stage} has {degree} shards and stage {home} {degrees[home]}",
                "stages that share ranks have the same tensor-parallel degree",
            )
    return tuple(degrees[: shape.depth])


@dataclass(frozen=True, kw_only=True)
class RankGrid:
    """All ranks of a run, numbered position by position, replica by replica, shard by shard.

    The shards of a replica together are what schedules call a rank: all of them do the same row of
    actions.
    """

    shape: PipelineShape
    shards: tuple[int, ...]
    """The tensor-parallel degree of each position."""

    @staticmethod
    def of(shape: PipelineShape, shards: Sequence[int] | None) -> "RankGrid":
        """The grid of these degrees; None for 1 everywhere."""
        return RankGrid(shape=shape, shards=tuple(shards or (1,) * shape.depth))

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self._places)

    @cached_property
    def _places(self) -> tuple[tuple[int, int], ...]:
        """Row and shard, by rank."""
        return tuple(
            (row, shard)
            for row in range(self.shape.ranks)
            for shard in range(self.shards[self.shape.position_of(row)])
        )

    @cached_property
    def _rank_by_place(self) -> dict[tuple[int, int], int]:
        return {place: rank for rank, place in enumerate(self._places)}

    def row_of(self, rank: int) -> int:
        """The row of the schedule's actions that a rank does."""
        return self._places[rank][0]

    def shard_of(self, rank: int) -> int:
        """Which shard of its replica a rank is."""
        return self._places[rank][1]

    def shards_of_row(self, row: int) -> int:
        """How many ranks do a row of actions."""
        return self.shards[self.shape.position_of(row)]

    def rank_at(self, row: int, shard: int) -> int:
        """The rank that is a shard of the replica that does a row."""
        return self._rank_by_place[row, shard]

    def ranks_of_row(self, row: int) -> tuple[int, ...]:
        """The ranks that do a row, shard by shard."""
        return tuple(self.rank_at(row, shard) for shard in range(self.shards_of_row(row)))

    def ranks_of(self, stage: int) -> tuple[int, ...]:
        """The ranks that hold a stage or a part of it, replica by replica."""
        rows = self.shape.ranks_of(stage)
        return tuple(rank for row in rows for rank in self.ranks_of_row(row))

    def same_shards(self, position: int) -> list[tuple[int, ...]]:
        """The ranks of a position that hold the same part of its stages, shard by shard."""
        rows = self.shape.ranks_of(position)
        shards = range(self.shards[position])
        return [tuple(self.rank_at(row, shard) for row in rows) for shard in shards]

    def named(self, rank: int) -> str:
        """How messages call a rank."""
        row, shard = self._places[rank]
        stages = self.shape.stages_of(row)
        noun = "stage" if len(stages) == 1 else "stages"
        part = f", shard {shard}" if self.shards_of_row(row) > 1 else ""
        return f"rank {rank} ({noun} {', '.join(map(str, stages))}{part})"
