"""The time that 2BW leaves for the reductions, used to the last forward and backward.

What the simulator makes of reductions that take longer is tested with the simulator.
"""

import threading
from dataclasses import replace
from unittest.mock import patch

import torch
import torch.distributed as dist

from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.generation.endless import update_slack
from diaulos.training.groups import Groups, make_groups
from diaulos.training.rank import train_rank
from diaulos.training.records import RankRecorder
from diaulos.training.replicas import StageReplicas
from diaulos.training.serial import train_serially
from tests.training.toy import toy_job

JOB = toy_job("2bw", (2, 2), 3, batches=3)


class _Progress:
    """Counts the backwards of a rank, and lets its reductions end only when it has done enough."""

    def __init__(self, each: int, batches: int, pairs: int, patience_seconds: float) -> None:
        self._each, self._batches, self._pairs = each, batches, pairs
        self._patience_seconds = patience_seconds
        self._backwards = 0
        self._reductions = 0
        self._changed = threading.Condition()
        self.all_came_in_time = True

    def count(self, action: Action) -> None:
        with self._changed:
            self._backwards += action.kind is Kind.BACKWARD
            self._changed.notify_all()

    def slow_down(self) -> None:
        """Return when the rank has done so many more pairs of forward and backward."""
        self._reductions += 1
        needed = min(self._reductions * self._each + self._pairs, self._batches * self._each)
        with self._changed:
            came = self._changed.wait_for(
                lambda: self._backwards >= needed, timeout=self._patience_seconds
            )
        self.all_came_in_time &= came


def _train(groups: Groups, extra: int, patience_seconds: float) -> tuple[bool, dict]:
    """Train with reductions that take the whole slack and `extra` pairs."""
    position = groups.shape.position_of(groups.rank)
    each = len(groups.shape.microbatches_of(groups.rank, 0))
    pairs = update_slack(groups.shape)[position] + extra
    progress = _Progress(each, JOB.batches, pairs, patience_seconds)

    note, sum_up = RankRecorder.action, StageReplicas.sum

    def note_and_count(recorder: RankRecorder, action: Action, start_seconds: float) -> None:
        note(recorder, action, start_seconds)
        progress.count(action)

    def sum_up_slowly(replicas: StageReplicas, gradients: list[torch.Tensor]) -> None:
        progress.slow_down()
        sum_up(replicas, gradients)

    with (
        patch.object(RankRecorder, "action", note_and_count),
        patch.object(StageReplicas, "sum", sum_up_slowly),
    ):
        trained = train_rank(JOB, groups)
    (weights,) = trained.weights.values()
    newest = {name: weight.detach() for name, weight in weights.named(weights.newest)}
    return progress.all_came_in_time, newest


def _both(rank: LocalRank) -> list[tuple[bool, dict]]:
    store = join_group(rank)
    groups = make_groups(JOB.shape, store, torch.device("cpu"))
    return [
        _train(replace(groups, store=dist.PrefixStore(str(extra), store)), extra, patience)
        for extra, patience in ((0, 30.0), (1, 0.5))
    ]


def test_reductions_that_fit_into_the_slack_hold_nothing_up():
    """Each rank goes on while its gradients are summed, just as far as its slack says.

    A reduction that takes m - (d-1-r) pairs of forward and backward on stage r ends in time, and
    with one pair more the rank stands still before it: it waits for the update. The numbers are
    the same.
    """
    run = train_serially(JOB)
    for within, beyond in run_ranks(_both, ranks=4):
        assert within[0]
        assert not beyond[0]
        for _, newest in (within, beyond):
            for name, weight in newest.items():
                torch.testing.assert_close(weight, run.versions[JOB.batches][name])
