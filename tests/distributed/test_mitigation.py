"""Mitigated 2BW and optimizers of other kinds on real ranks equal their serial replays."""

from dataclasses import replace
from functools import partial

import pytest

from diaulos.training.checkpoints import read_checkpoint
from diaulos.training.evaluation import Evaluation
from diaulos.training.loss_scale import LossScaling
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.optimizers import Muon, TorchOptimizer
from diaulos.training.precision import Precision
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_bit_equal, run_jobs
from tests.training.toy import RandomTokens, toy_job

HELD_OUT = Evaluation(data=RandomTokens(), microbatches=2, every_batches=2)
ALL = DelayMitigation(flush_updates=2, extrapolated_weights=True, learning_rate_updates=4)
EXTRAPOLATED = DelayMitigation(extrapolated_weights=True)
MUON = Muon(
    learning_rate=0.02,
    others=TorchOptimizer(name="adamw", learning_rate=1e-2),
    layers_of_others=("embedding", "head"),
)


def _job(mitigation=DelayMitigation(), *, replicas=(1, 1), **changes):
    other = {key: changes.pop(key) for key in ("evaluation", "loss_scaling") if key in changes}
    job = toy_job("2bw", replicas, 2, batches=5, clip_norm=0.5, **changes)
    return replace(job, mitigation=mitigation, **other)


def _overflowing(initial):
    """Scales at which some of the first updates are skipped."""
    return {"precision": Precision.FP16, "loss_scaling": LossScaling(initial=initial)}


def test_every_remedy_equals_its_replay():
    """One by one and together, in low precision, with skipped updates and sharded optimizers."""
    plain = train_serially(_job())
    jobs = [
        _job(DelayMitigation(flush_updates=2)),
        _job(EXTRAPOLATED, evaluation=HELD_OUT),
        _job(DelayMitigation(learning_rate_updates=4)),
        _job(ALL, precision=Precision.BF16, evaluation=HELD_OUT),
        _job(EXTRAPOLATED, **_overflowing(2.0**19)),
        _job(EXTRAPOLATED, replicas=(2,), sharded_optimizer=True, evaluation=HELD_OUT),
        _job(EXTRAPOLATED, replicas=(2,), sharded_optimizer=True, **_overflowing(2.0**21)),
    ]
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=2), strict=True):
        run = train_serially(job)
        assert job.precision is not Precision.FLOAT32 or run.losses != plain.losses
        for outcome in outcomes:
            assert_bit_equal(outcome, run)
            assert job.precision is not Precision.FP16 or 0 < len(outcome.skipped) < 5


def test_optimizers_of_all_kinds_equal_one_process():
    """Muon beside AdamW, and some of torch's, with the weights of two versions."""
    makers = [MUON, *(TorchOptimizer(name=name, learning_rate=0.01) for name in OTHERS)]
    jobs = [_job(make_optimizer=maker.factory()) for maker in makers]
    jobs.append(_job(make_optimizer=MUON.factory(), replicas=(2,), sharded_optimizer=True))
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=2), strict=True):
        run = train_serially(job)
        for outcome in outcomes:
            assert_bit_equal(outcome, run)


OTHERS = ("adagrad", "nadam", "adafactor", "rprop")


@pytest.mark.parametrize("resumed", [1, 2, 4])
def test_a_resumed_run_goes_on_with_predictions_and_momenta(resumed, tmp_path):
    """With a flush at first, extrapolation and Muon, from any update: to the bit."""
    job = _job(ALL, make_optimizer=MUON.factory())
    checkpoint = tmp_path / f"update_{resumed:08d}"
    legs = [Leg(job=job, checkpoints=tmp_path), Leg(job=job, resume_from=checkpoint)]
    straight, again = run_jobs(legs, ranks=2)
    run = train_serially(job)
    for outcome in (*straight, *again):
        assert_bit_equal(outcome, run)
    assert_bit_equal(again[0], train_serially(job, resume_from=read_checkpoint(checkpoint)))


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.BF16])
@pytest.mark.parametrize("replicas", [(1, 1), (2,)])
def test_remedies_may_begin_and_end_where_a_run_is_resumed(replicas, precision, tmp_path):
    """A run without predictions goes on with them, and one with them without, also sharded."""
    make = partial(_job, replicas=replicas, precision=precision, sharded_optimizer=replicas == (2,))
    plain, predicted = make(), make(EXTRAPOLATED)
    legs = [
        Leg(job=plain, checkpoints=tmp_path / "plain"),
        Leg(job=predicted, checkpoints=tmp_path / "predicted"),
        Leg(job=predicted, resume_from=tmp_path / "plain" / "update_00000003"),
        Leg(job=plain, resume_from=tmp_path / "predicted" / "update_00000003"),
    ]
    first, second, *resumed = run_jobs(legs, ranks=2)
    for leg, outcomes in zip(legs[2:], resumed, strict=True):
        run = train_serially(leg.job, resume_from=read_checkpoint(leg.resume_from))
        for outcome in outcomes:
            assert_bit_equal(outcome, run)
    assert first[0].losses != second[0].losses
