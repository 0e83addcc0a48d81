"""Modules cut by their graphs, lists of modules and frozen layers on real ranks."""

from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from diaulos.errors import InputError
from diaulos.models.exported.export import exported
from diaulos.models.exported.sequence import layers_of
from diaulos.models.gpt import summed_cross_entropy
from diaulos.models.layers import Reduction
from diaulos.training.checkpoints import read_checkpoint
from diaulos.training.resuming import check_resumable
from diaulos.training.serial import train_serially
from tests.distributed.jobs import Leg, assert_close, check_close, float64_job, run_jobs
from tests.models.exported.toys import POSITIONS, WIDTH, Skips, seeded, skips_inputs

TOLERANCE = 1e-12


@dataclass(frozen=True)
class SkipsBatches:
    """Microbatches that are a function of batch and microbatch; the positions are always alike."""

    def __call__(self, batch: int, microbatch: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return skips_inputs(100 * batch + microbatch)


@dataclass(frozen=True)
class Vectors:
    """Random vectors."""

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(100 * batch + microbatch)
        return torch.randn(2, WIDTH, generator=generator), torch.ones(2, WIDTH)


def _skips(schedule, replicas, **changes):
    inputs, targets = skips_inputs()
    model = exported(
        seeded(partial(Skips, dropout=0.1)),
        inputs,
        targets,
        loss=summed_cross_entropy,
        keywords={"scale": 0.5, "mode": "add", "nothing": None},
        tokens_per_sample=POSITIONS,
    )
    return float64_job(model, SkipsBatches(), schedule, replicas, **changes)


def _squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum()


def _chain(schedule, replicas, *, frozen=(), **changes):
    modules = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.GELU(), nn.Linear(WIDTH, WIDTH)]
    model = layers_of(
        seeded(lambda: nn.Sequential(*modules)),
        loss=_squares,
        example=_vectors,
        reduction=Reduction.SUM,
    ).freeze(frozen)
    return float64_job(model, Vectors(), schedule, replicas, **changes)


def _vectors(microbatch_size: int) -> tuple[Tensor, Tensor]:
    return Vectors()(0, 0) if microbatch_size == 2 else (torch.ones(0), torch.ones(0))


SCHEDULES = ("gpipe", "1f1b", "2bw", "zb-h1")


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_graph_with_skips_trains_as_in_one_process(ranks):
    """Several tensors between stages, some without gradient, under all kinds of schedules."""
    jobs = [_skips(schedule, (1,) * ranks, recompute=schedule == "2bw") for schedule in SCHEDULES]
    jobs += [_skips("zb-v", (1,) * ranks * 2), _skips("1f1b", {2: (2,), 4: (1, 2, 1)}[ranks])]
    check_close(jobs, ranks, tolerance=TOLERANCE)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_stages_without_parameters_train_the_others(schedule):
    """Activations alone on two of four stages; their updates are of nothing."""
    check_close([_chain(schedule, (1,) * 4)], ranks=4, tolerance=TOLERANCE)


@pytest.mark.parametrize("frozen", [("layer_0",), ("layer_3",)])
def test_frozen_stages_stay_and_get_no_gradients(frozen):
    """What is before all that is trained runs no backward, and what is behind passes it on."""
    jobs = [_chain(schedule, (1,) * 4, frozen=frozen) for schedule in SCHEDULES]
    check_close(jobs, ranks=4, tolerance=TOLERANCE)


def test_tied_layers_that_are_frozen_stay_alike():
    """Both ends of a tie may be frozen together, with others between them that are trained."""
    job = _skips("2bw", (1, 1))
    check_close([replace(job, model=job.model.freeze(["tokens", "out"]))], 2, tolerance=TOLERANCE)


def test_a_run_with_frozen_layers_is_resumed(tmp_path):
    """Checkpoints hold what is trained, of layers without weights nothing; the rest is made."""
    straight = _chain("2bw", (1, 1), frozen=("layer_0",))
    begun = Leg(job=replace(straight, batches=2), checkpoints=tmp_path)
    resumed = Leg(job=straight, resume_from=tmp_path / "update_00000002")
    run_jobs([begun], ranks=2)
    check_resumable(straight, read_checkpoint(resumed.resume_from))
    run = train_serially(straight)
    for outcome in run_jobs([resumed], ranks=2)[0]:
        assert_close(outcome, run, tolerance=TOLERANCE)


def test_a_model_without_anything_to_train_is_refused():
    """All layers frozen is an error before any rank is started."""
    with pytest.raises(InputError, match="no layer of the model has weights to train"):
        _chain("1f1b", (1, 1), frozen=("layer_0", "layer_3"))
