"""Which rank is what."""

import pytest

from diaulos.errors import InputError
from diaulos.schedules.shape import PipelineShape
from diaulos.training.grid import RankGrid
from tests.training.toy import toy_job

GRID = RankGrid.of(PipelineShape(replicas=(2, 1), microbatches=2), (1, 3))


def test_ranks_are_numbered_position_by_position_replica_by_replica_shard_by_shard():
    """Two replicas of one shard, and then three shards of one replica."""
    assert GRID.ranks == 5
    assert [GRID.row_of(rank) for rank in range(5)] == [0, 1, 2, 2, 2]
    assert [GRID.shard_of(rank) for rank in range(5)] == [0, 0, 0, 1, 2]
    assert GRID.ranks_of(0) == (0, 1)
    assert GRID.ranks_of(1) == GRID.ranks_of_row(2) == (2, 3, 4)


def test_the_same_shards_of_all_replicas_hold_the_same():
    """Shard k of each replica, for each k."""
    grid = RankGrid.of(PipelineShape(replicas=(2,), microbatches=2), (2,))

    assert grid.same_shards(0) == [(0, 2), (1, 3)]


def test_messages_name_the_shard_where_there_are_several():
    """By its stage, and by its shard."""
    assert GRID.named(0) == "rank 0 (stage 0)"
    assert GRID.named(4) == "rank 4 (stage 1, shard 2)"


def test_without_degrees_nothing_is_split():
    """One rank does one row."""
    grid = RankGrid.of(GRID.shape, None)

    assert [grid.row_of(rank) for rank in range(grid.ranks)] == [0, 1, 2]


def test_stages_of_one_rank_are_split_alike():
    """Two stages of a rank that are split differently are refused, by number."""
    with pytest.raises(InputError, match="stage 2 has 2 shards and stage 0 1"):
        toy_job("interleaved", (1,) * 4, 2, chunks=2, shards=(1, 1, 2, 1))
