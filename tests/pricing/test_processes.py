"""Ranks on this machine: results, failures, and nothing left behind."""

import os
from pathlib import Path

import pytest
import torch

from diaulos.errors import InputError
from diaulos.pricing.processes import RankError, run_ranks
from tests.pricing import rank_bodies


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("ranks", [1, 3])
def test_results_come_in_rank_order(ranks: int) -> None:
    """Each rank's result comes back, tensors too; the ranks are one process group and then gone."""
    results = run_ranks(rank_bodies.summed_ranks, torch.ones(1), ranks=ranks)
    expected = sum(range(ranks)) + ranks
    assert [result[0].item() for result in results] == [expected] * ranks
    assert len({result[1] for result in results}) == ranks
    assert not any(is_alive(result[1]) for result in results)
    assert {result[2] for result in results} == {1}


def test_the_first_failure_reaches_the_caller() -> None:
    """The culprit's traceback is raised, not that of the rank that lost its peer."""
    with pytest.raises(RankError, match="the culprit's own words") as caught:
        run_ranks(rank_bodies.second_raises, ranks=2)
    assert caught.value.rank == 1
    assert caught.value.exit_status == 1
    assert "second_raises" in caught.value.traceback


def test_a_killed_rank_is_named() -> None:
    """A rank that dies without a word is the culprit, whatever the others say."""
    with pytest.raises(RankError, match="by signal SIGKILL") as caught:
        run_ranks(rank_bodies.second_dies, ranks=2)
    assert caught.value.rank == 1


def test_a_rank_that_leaves_early_is_named() -> None:
    """A rank that exits without a result ends the run at once."""
    with pytest.raises(RankError, match="with exit status 3") as caught:
        run_ranks(rank_bodies.second_exits, ranks=2)
    assert caught.value.rank == 1


def test_a_late_rank_shows_where_it_is(tmp_path: Path) -> None:
    """After the timeout the stack of each late rank is shown, and all are gone."""
    with pytest.raises(RankError, match="second_sleeps_forever") as caught:
        run_ranks(rank_bodies.second_sleeps_forever, str(tmp_path), ranks=2, timeout_seconds=1.0)
    assert caught.value.rank == 1
    assert "rank 0:" not in caught.value.traceback
    assert not any(is_alive(int((tmp_path / name).read_text())) for name in ("0", "1"))


def test_what_cannot_be_sent_is_refused() -> None:
    """A local function is refused before any process starts; such a result names its rank."""
    with pytest.raises(InputError, match="must survive pickling"):
        run_ranks(lambda rank: rank, ranks=1)
    with pytest.raises(RankError, match="unpicklable"):
        run_ranks(rank_bodies.unpicklable, ranks=1)


def test_there_is_at_least_one_rank() -> None:
    """No ranks is no run."""
    with pytest.raises(InputError, match="ranks is 0"):
        run_ranks(rank_bodies.unpicklable, ranks=0)
