"""When is evaluated, and in which order the stages do it."""

from dataclasses import replace

import pytest

from diaulos.errors import InputError
from diaulos.schedules.causality.order import stretches
from diaulos.schedules.shape import PipelineShape
from diaulos.training.evaluation import Evaluation, forwards_only
from tests.training.toy import RandomTokens, toy_job


@pytest.mark.parametrize(
    "shape",
    [
        PipelineShape(replicas=(1, 1, 1, 1), microbatches=4),
        PipelineShape(replicas=(1, 2, 1), microbatches=4),
        PipelineShape(replicas=(1, 1), microbatches=4, chunks=3),
        PipelineShape(replicas=(2, 2), microbatches=4, chunks=2, folded=True),
    ],
)
def test_forwards_alone_end_on_any_pipeline(shape):
    """Every stage runs every microbatch once, and no rank waits in a circle."""
    schedule = forwards_only(shape, 6)
    done = sum(stretch.stop - stretch.start for stretch in stretches(schedule))

    assert done == sum(map(len, schedule.actions))
    forwards = [(a.stage, a.number) for row in schedule.actions for a in row if a.kind.is_compute]
    assert sorted(forwards) == [(stage, j) for stage in range(shape.stages) for j in range(6)]


def test_schedules_end_where_it_is_time_to_evaluate():
    """Every so many batches, from wherever the run begins, and at the end."""
    job = toy_job("2bw", (1, 1), 2, batches=8)
    evaluation = Evaluation(data=RandomTokens(), microbatches=2, every_batches=3)
    job = replace(job, evaluation=evaluation)

    assert [3, 6, 8] == [schedule.batch_numbers.stop for schedule in job.schedules()]
    assert [6, 8] == [schedule.batch_numbers.stop for schedule in job.schedules(5)]
    assert [evaluation.is_due(batches, 8) for batches in (3, 5, 6, 8)] == [True, False, True, True]


def test_impossible_evaluations_are_refused():
    """Counts begin at 1, and replicas share the microbatches evenly."""
    with pytest.raises(InputError, match="every_batches is 0"):
        Evaluation(data=RandomTokens(), microbatches=2, every_batches=0)
    with pytest.raises(InputError, match="4 microbatches would do"):
        forwards_only(PipelineShape(replicas=(2, 2), microbatches=4), 3)
