"""Hugging Face models on real ranks train as in one process, and as transformers alone trains them.

Both in float64 to 1e-12: what passes between stages changes the order of some sums.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

from diaulos.training.evaluation import Evaluation
from diaulos.training.job import TrainingJob
from diaulos.training.precision import Precision
from diaulos.training.serial import train_serially
from tests.distributed.jobs import assert_close, run_jobs
from tests.models.huggingface.toys import CONFIGS, RandomBatches, inputs_of, toy_model
from tests.training.toy import graph_of, plan_of

TOLERANCE = 1e-12
SPLIT = ("llama", "qwen3", "gemma")
"""Models that say how they are split."""


def _job(kind, schedule, replicas, *, padded=False, shards=None, recompute=False, **changes):
    model = toy_model(kind, padded=padded, **changes)
    data = RandomBatches(inputs=inputs_of(CONFIGS[kind]), padded=padded)
    chunks = 2 if schedule in ("interleaved", "zb-v") else 1
    return TrainingJob(
        model=model,
        graph=graph_of(model),
        plan=plan_of(len(model.layers), replicas, 4, shards=shards, recompute=recompute),
        schedule=schedule,
        data=data,
        microbatch_size=2,
        batches=3,
        make_optimizer=partial(torch.optim.SGD, lr=0.05, momentum=0.9),
        precision=Precision.FLOAT64,
        clip_norm=None if schedule == "pipedream" else 1.0,
        evaluation=Evaluation(data=data, microbatches=2, every_batches=3),
        chunks=chunks,
    )


def _check(jobs, ranks):
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=ranks), strict=True):
        run = train_serially(job)
        for outcome in outcomes:
            assert_close(outcome, run, tolerance=TOLERANCE)


def test_every_model_trains_in_two_stages():
    """With padding and without, under schedules with a flush, with delay and in halves."""
    schedules = ("1f1b", "2bw", "zb-h1", "gpipe")
    _check(
        [
            _job(kind, schedules[i % 4], (1, 1), padded=i % 2 == 0, recompute=i % 3 == 0)
            for i, kind in enumerate(CONFIGS)
        ],
        ranks=2,
    )


def test_every_model_trains_in_four_stages():
    """One after another, or two on each of two replicas' ranks."""
    jobs = [
        _job(kind, ("2bw", "zb-h1", "1f1b")[i % 3], (1,) * 4, padded=i % 2 == 1)
        for i, kind in enumerate(CONFIGS)
    ]
    jobs += [_job(kind, "zb-v", (2,) * 4, padded=kind == "t5") for kind in ("t5", "bert")]
    _check(jobs, ranks=4)


def test_models_that_say_how_are_split():
    """Tensor-parallel degree 2 beside 1, by the model's own plan."""
    _check([_job(kind, "1f1b", (1, 1), shards=(2, 1), padded=True) for kind in SPLIT], ranks=3)
