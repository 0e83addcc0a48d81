"""Hugging Face models on real ranks train as in one process, in float64 to 1e-12.

That their layers give what transformers gives is tested in models/huggingface/test_model.py.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from diaulos.models.huggingface.weights import open_weights
from diaulos.models.layers import build_layer, run_layer
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.evaluation import Evaluation
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.pretrained import check_pretrained, save_pretrained
from diaulos.training.rank import train_rank
from diaulos.training.serial import train_serially
from tests.distributed.jobs import assert_close, float64_job, run_jobs
from tests.models.huggingface.toys import CONFIGS, RandomBatches, inputs_of, toy_model

TOLERANCE = 1e-12


def _job(kind, schedule, replicas, *, padded=False, weights=None, **stages):
    data = RandomBatches(inputs=inputs_of(CONFIGS[kind]), padded=padded)
    model = toy_model(kind, padded=padded, weights=weights)
    job = float64_job(model, data, schedule, replicas, **stages)
    return replace(job, evaluation=Evaluation(data=data, microbatches=2, every_batches=3))


def _two_stages():
    """Of two replicas each, with padding and without, some recomputed."""
    schedules = ("1f1b", "2bw", "zb-h1", "gpipe")
    return [
        _job(kind, schedules[i % 4], (2, 2), padded=i % 2 == 0, recompute=i % 3 == 0)
        for i, kind in enumerate(CONFIGS)
    ]


def _four_stages():
    """One on each rank, and two on each where a schedule folds."""
    jobs = [
        _job(kind, ("2bw", "zb-h1", "1f1b")[i % 3], (1,) * 4, padded=i % 2 == 1)
        for i, kind in enumerate(CONFIGS)
    ]
    return [*jobs, _job("t5", "zb-v", (2,) * 4, padded=True)]


def _shards():
    """Stages of two shards, and one stage of two replicas with two shards each."""
    degrees = {"llama": ((1, 1), (2, 2)), "qwen3": ((1, 2), (2, 1)), "gemma": ((2,), (2,))}
    return [
        replace(_job(kind, "1f1b", replicas, shards=shards, padded=True), batches=2)
        for kind, (replicas, shards) in degrees.items()
    ]


KINDS_OF_JOBS = {"two stages": _two_stages, "four stages": _four_stages, "shards": _shards}


@pytest.fixture(scope="module")
def outcomes():
    """Jobs with the outcomes of their ranks: all run at once, since transformers loads slowly."""
    jobs = {kind: make() for kind, make in KINDS_OF_JOBS.items()}
    found = iter(run_jobs([job for some in jobs.values() for job in some], ranks=4))
    return {kind: [(job, next(found)) for job in some] for kind, some in jobs.items()}


@pytest.mark.parametrize("kind", KINDS_OF_JOBS)
def test_every_model_trains_as_in_one_process(kind, outcomes):
    """Losses, gradients, weights, optimizer states and evaluations are those of one process."""
    for job, by_rank in outcomes[kind]:
        run = train_serially(job)
        for outcome in by_rank:
            assert_close(outcome, run, tolerance=TOLERANCE)


def test_a_model_goes_from_transformers_to_training_and_back(tmp_path):
    """Loaded from a folder, trained in stages and saved, it is read by `from_pretrained`.

    Its scores are those of the layers, and its loss that of the pipeline's evaluation; with tied
    embeddings, of one shard and of two.
    """
    jobs = {}
    for kind, shards in (("gemma", (2, 1)), ("t5", (1, 1, 1))):
        start = tmp_path / f"{kind}_start"
        _model_class(kind).from_config(CONFIGS[kind]).save_pretrained(start)
        job = _job(kind, "2bw", (1,) * len(shards), shards=shards, weights=open_weights(start))
        jobs[kind] = replace(job, batches=5, evaluation=replace(job.evaluation, every_batches=5))
        check_pretrained(job)
    by_rank = run_ranks(_train_and_save, jobs, tmp_path, ranks=3)
    for kind, job in jobs.items():
        start, end = (tmp_path / f"{kind}_{name}" for name in ("start", "end"))
        trained, started = (
            _model_class(kind).from_pretrained(folder).double().eval() for folder in (end, start)
        )
        held_out = [job.evaluation.data(0, number) for number in range(2)]
        scores = [_scores(trained, inputs) for inputs, _ in held_out]
        losses = [
            float(job.model.loss(given, targets)) / targets.numel()
            for given, (_, targets) in zip(scores, held_out, strict=True)
        ]
        inputs, _ = held_out[0]
        rounded = _model_class(kind).from_pretrained(end, dtype=torch.float32).eval()
        read = toy_model(kind, weights=open_weights(end))

        assert (scores[0] - _scores(started, inputs)).abs().max() > 1e-3
        assert torch.equal(_scores(rounded, inputs), _scores_of_layers(read, inputs))
        for evaluated in by_rank:
            assert evaluated[kind] == pytest.approx(sum(losses) / 2, abs=TOLERANCE)


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


def _train_and_save(
    rank: LocalRank, jobs: dict[str, TrainingJob], folder: Path
) -> dict[str, float]:
    store = join_group(rank)
    evaluated = {}
    for kind, job in jobs.items():
        own_store = dist.PrefixStore(kind, store)
        device = torch.device("cpu")
        groups = make_groups(job.shape, own_store, device, shards=job.grid.shards)
        trained = train_rank(job, groups)
        save_pretrained(folder / f"{kind}_end", job, trained)
        evaluated[kind] = trained.evaluations[-1].loss
    return evaluated
