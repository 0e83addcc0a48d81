"""Hugging Face models on real ranks train as in one process, and as transformers alone trains them.

Both in float64 to 1e-12: what passes between stages changes the order of some sums.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from diaulos.models.huggingface.weights import open_weights
from diaulos.models.layers import build_layer, run_layer
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.evaluation import Evaluation
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.precision import Precision
from diaulos.training.pretrained import check_pretrained, save_pretrained
from diaulos.training.rank import train_rank
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


def test_a_model_goes_from_transformers_to_training_and_back(tmp_path):
    """Loaded from a folder, trained in stages and saved, it is read by `from_pretrained`.

    Its scores are those of the pipeline's stages, and its loss that of the pipeline's evaluation;
    with tied embeddings, of one shard and of two.
    """
    for kind, shards in (("gemma", (2, 1)), ("t5", (1, 1, 1))):
        config = CONFIGS[kind]
        start, end = tmp_path / f"{kind}_start", tmp_path / f"{kind}_end"
        _model_class(kind).from_config(config).save_pretrained(start)
        job = _job(kind, "2bw", (1,) * len(shards), shards=shards, weights=open_weights(start))
        job = replace(job, batches=5, evaluation=replace(job.evaluation, every_batches=5))
        check_pretrained(job)
        evaluated = run_ranks(_train_and_save, job, end, ranks=3)
        trained = _model_class(kind).from_pretrained(end).double().eval()
        held_out = [job.evaluation.data(0, number) for number in range(2)]
        scores = [_scores(trained, inputs) for inputs, _ in held_out]

        started = _model_class(kind).from_pretrained(start).double().eval()
        assert (scores[0] - _scores(started, held_out[0][0])).abs().max() > 1e-3
        read = toy_model(kind, weights=open_weights(end))
        rounded = _model_class(kind).from_pretrained(end, dtype=torch.float32).eval()
        inputs, _ = held_out[0]
        assert torch.equal(_scores(rounded, inputs), _scores_of_layers(read, inputs))
        losses = [
            float(job.model.loss(given, targets)) / targets.numel()
            for given, (_, targets) in zip(scores, held_out, strict=True)
        ]
        for loss in evaluated:
            assert loss == pytest.approx(sum(losses) / 2, abs=TOLERANCE)


def _model_class(kind):
    return {"t5": AutoModelForSeq2SeqLM}.get(kind, AutoModelForCausalLM)


def _scores(model, inputs):
    more = {"decoder_input_ids": inputs[1]} if len(inputs) > 1 else {}
    with torch.no_grad():
        return model(input_ids=inputs[0], use_cache=False, **more).logits


def _scores_of_layers(model, stream):
    with torch.no_grad():
        for spec in model.layers:
            stream = run_layer(build_layer(spec, 0).eval(), stream, recompute=False)
    return stream[0]


def _train_and_save(rank: LocalRank, job: TrainingJob, folder: Path) -> float:
    groups = make_groups(job.shape, join_group(rank), torch.device("cpu"), shards=job.grid.shards)
    trained = train_rank(job, groups)
    save_pretrained(folder, job, trained)
    return trained.evaluations[-1].loss
