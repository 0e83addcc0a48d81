"""Faults that show only while a pipeline runs: shapes, rare parameters, what is kept too long."""

import gc
import random
import time
import weakref
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from diaulos.errors import InputError
from diaulos.models.gpt import Embedding
from diaulos.models.layers import LayerSpec
from diaulos.pricing.processes import LocalRank, join_group, run_ranks
from diaulos.training.evaluation import Evaluation
from diaulos.training.failures import RunError
from diaulos.training.groups import make_groups
from diaulos.training.job import TrainingJob
from diaulos.training.rank import train_rank
from diaulos.training.records import StepRecord
from diaulos.training.serial import train_serially
from tests.distributed.jobs import assert_bit_equal, run_jobs
from tests.training.toy import CONFIG, RandomTokens, graph_of, plan_of, toy_job


def _with_layers(job: TrainingJob, layers: list[LayerSpec], stages: int) -> TrainingJob:
    model = replace(job.model, layers=tuple(layers))
    plan = plan_of(
        len(layers),
        (1,) * stages,
        job.plan.microbatches,
        recompute="recompute" in job.plan.stages[0].options[0],
    )
    return replace(job, model=model, graph=graph_of(model), plan=plan)


@dataclass(frozen=True)
class _ShorterLater(RandomTokens):
    """Samples of batch 1 are shorter than those of batch 0."""

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = RandomTokens.__call__(self, batch, microbatch)
        return inputs[:, : 8 - 2 * batch], targets[:, : 8 - 2 * batch]


def _refused(rank: LocalRank, job: TrainingJob) -> str:
    groups = make_groups(job.shape, join_group(rank), torch.device("cpu"))
    with pytest.raises(RunError) as refusal:
        train_rank(job, groups)
    return str(refusal.value)


def test_a_batch_of_another_shape_is_refused_with_both_forms():
    """Nothing is cut or filled up in silence: every rank says what came and what was agreed on."""
    job = replace(toy_job("1f1b", (1, 1), 2), data=_ShorterLater())
    for message in run_ranks(_refused, job, ranks=2):
        assert "rank 0 (stage 0) failed in 0SEND_F2" in message
        assert "it would send float32[2, 6, 16], and float32[2, 8, 16] was agreed on" in message


class _RareEmbedding(Embedding):
    """Has a weight that counts only where a microbatch begins with token 0."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.rare = nn.Parameter(torch.ones(CONFIG.width))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = super().forward(tokens)
        return hidden * self.rare if tokens.is_meta or tokens[0, 0] == 0 else hidden


@dataclass(frozen=True)
class _ZeroFirst(RandomTokens):
    """Only the first microbatch of each batch begins with token 0."""

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = RandomTokens.__call__(self, batch, microbatch)
        inputs = inputs.clone()
        inputs[0, 0] = 0 if microbatch == 0 else 1
        return inputs, targets


def test_a_parameter_used_in_the_first_microbatch_alone_is_trained():
    """Its gradient is that of one process, although the last microbatches have none of it."""
    jobs = []
    for schedule in ("gpipe", "2bw", "zb-h1"):
        job = replace(toy_job(schedule, (1, 1), 3), data=_ZeroFirst())
        _, *rest = job.model.layers
        embedding = LayerSpec(name="embedding", build=_RareEmbedding)
        jobs.append(_with_layers(job, [embedding, *rest], stages=2))
    for job, outcomes in zip(jobs, run_jobs(jobs, ranks=2), strict=True):
        run = train_serially(job)
        assert run.gradients[1]["embedding.rare"].abs().sum() > 0
        for outcome in outcomes:
            assert_bit_equal(outcome, run)


class _Token:
    """Lives as long as the graph of a forward."""


class _Watch(torch.autograd.Function):
    """Its input; the graph holds a token."""

    @staticmethod
    def forward(context, hidden: Tensor, watched: "_Watched") -> Tensor:
        context.token = _Token()
        watched.alive += 1
        watched.peak = max(watched.peak, watched.alive)
        weakref.finalize(context.token, watched.let_go)
        return hidden.clone()

    @staticmethod
    def backward(_context, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Watched(nn.Module):
    """Counts its forwards whose graphs are alive, over all copies of it in a process."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.peak = 0

    def __deepcopy__(self, memo: dict) -> "_Watched":
        return self

    def let_go(self) -> None:
        self.alive -= 1

    def forward(self, hidden: Tensor) -> Tensor:
        return _Watch.apply(hidden, self)


def _graphs(rank: LocalRank, jobs: list[TrainingJob]) -> list[tuple[int, int]]:
    """For each job the most graphs alive on this rank, and those that are left."""
    store = join_group(rank)
    groups = make_groups(jobs[0].shape, store, torch.device("cpu"))
    counted = []
    for index, job in enumerate(jobs):
        own = replace(groups, store=torch.distributed.PrefixStore(str(index), store))
        trained = train_rank(job, own)
        module = trained.weights[rank.rank].module(trained.weights[rank.rank].newest)
        watched = next(part for part in module.modules() if isinstance(part, _Watched))
        gc.collect()
        counted.append((watched.peak, watched.alive))
    return counted


def _watched_job(schedule: str, *, recompute: bool) -> TrainingJob:
    job = toy_job(schedule, (1, 1, 1), 12, recompute=recompute)
    layers = [
        part
        for index, spec in enumerate(job.model.layers[:3])
        for part in (spec, LayerSpec(name=f"watched_{index}", build=_Watched))
    ]
    layers.append(job.model.layers[3])
    return _with_layers(job, layers, stages=3)


def test_no_more_graphs_live_than_microbatches_are_in_flight():
    """d - s on stage s of d under 1F1B and 2BW, all of a batch under GPipe, and none afterwards."""
    in_flight = {"1f1b": (3, 2, 1), "2bw": (3, 2, 1), "gpipe": (12, 12, 12)}
    jobs = [_watched_job(schedule, recompute=False) for schedule in in_flight]
    by_rank = run_ranks(_graphs, jobs, ranks=3)
    for rank, counted in enumerate(by_rank):
        for limits, (peak, left) in zip(in_flight.values(), counted, strict=True):
            assert (peak, left) == (limits[rank], 0)


def test_recomputation_leaves_no_graph_behind():
    """Neither that of the forward nor that of the forward which the backward runs again."""
    jobs = [_watched_job(schedule, recompute=True) for schedule in ("gpipe", "2bw", "zb-h1")]
    for counted in run_ranks(_graphs, jobs, ranks=3):
        assert [left for _, left in counted] == [0, 0, 0]


def _evaluated(rank: LocalRank, job: TrainingJob) -> tuple[list[float], list[float]]:
    groups = make_groups(job.shape, join_group(rank), torch.device("cpu"))
    drawn = random.Random(rank.rank)

    def dawdle(_: object) -> None:
        time.sleep(drawn.uniform(0, 0.02))

    trained = train_rank(job, groups, observe_step=dawdle, observe_evaluation=dawdle)
    steps: list[StepRecord] = trained.steps
    return [step.loss for step in steps], [record.loss for record in trained.evaluations]


def test_evaluations_in_a_row_end_whatever_ranks_do_between():
    """Twenty of them, each rank as slow as it likes: the numbers are those of one process."""
    evaluation = Evaluation(data=RandomTokens(), microbatches=2, every_batches=1)
    job = replace(toy_job("2bw", (1, 1), 2, batches=20), evaluation=evaluation)
    run = train_serially(job)
    for losses, evaluations in run_ranks(_evaluated, job, ranks=2):
        assert losses == run.losses
        assert evaluations == list(run.evaluations.values())


def test_running_statistics_are_refused():
    """Those of batch normalisation would be of microbatches, of one version, and saved nowhere."""
    job = toy_job("2bw", (1, 1), 2)
    norm = LayerSpec(name="norm", build=partial(nn.BatchNorm1d, 8))
    with pytest.raises(InputError, match="layer norm keeps running statistics") as refusal:
        _with_layers(job, [*job.model.layers[:-1], norm, job.model.layers[-1]], stages=2)
    assert "GroupNorm" in str(refusal.value)
