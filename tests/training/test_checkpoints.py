"""Checkpoints on a disk: whole or not there, the newest kept, and refused with names."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.training.checkpoints import complete, latest_checkpoint, remove_torn, write_layers
from diaulos.training.precision import Precision
from diaulos.training.resuming import check_resumable, load
from diaulos.training.saving import CheckpointSettings, copies, describe
from diaulos.training.stage import StageModule, place_layers
from diaulos.training.weights import WeightVersions
from tests.training.toy import CONFIG, graph_of, plan_of, toy_job

JOB = toy_job("2bw", (1, 1), 2)


def _stages(job, updates=0):
    """The weights of all stages after some updates with made-up gradients."""
    stages = []
    for stage, layers in enumerate(place_layers(job.model, job.graph, job.plan)):
        kept = job.first_schedule.weight_versions[stage]
        weights = WeightVersions(StageModule(layers, job.seed), kept, job.make_optimizer)
        for step in range(updates):
            gradients = [torch.full_like(p, 1.0 + step) for _, p in weights.named(weights.newest)]
            weights.update(gradients)
        stages.append(weights)
    return stages


def _write(folder, job, updates, kept=9):
    """A complete checkpoint of a job, and the stages that it is of."""
    stages = _stages(job, updates)
    write_layers(folder, updates, copies(stages, job.model))
    complete(folder, describe(job, updates), kept=kept)
    return stages


@pytest.mark.parametrize("updates", [1, 2, 3])
def test_what_is_saved_is_loaded(updates, tmp_path):
    """Every version, and the optimizer's state, come back into the banks where they belong."""
    saved = _write(tmp_path, JOB, updates)
    loaded = _stages(replace(JOB, seed=1))
    load(loaded, latest_checkpoint(tmp_path), JOB.model)

    for old, new in zip(saved, loaded, strict=True):
        assert old.newest == new.newest
        for version in old.alive:
            for (_, a), (_, b) in zip(old.named(version), new.named(version), strict=True):
                assert torch.equal(a, b)
        states = new.optimizer_state()
        for name, state in old.optimizer_state().items():
            assert all(torch.equal(tensor, states[name][key]) for key, tensor in state.items())


def test_the_newest_are_kept(tmp_path):
    """Older checkpoints go, and so does what was left aside before the newest."""
    write_layers(tmp_path, 1, {"torn": {"a": torch.ones(1)}})
    for updates in (2, 3, 4):
        _write(tmp_path, JOB, updates, kept=2)

    assert ["update_00000003", "update_00000004"] == sorted(p.name for p in tmp_path.iterdir())


def test_what_is_written_in_part_is_not_there(tmp_path):
    """Until it is complete a checkpoint is not found, and the one before it is."""
    assert latest_checkpoint(tmp_path) is None
    _write(tmp_path, JOB, 1)
    write_layers(tmp_path, 2, copies(_stages(JOB, 2), JOB.model))

    assert latest_checkpoint(tmp_path).description.updates == 1


def test_a_checkpoint_is_of_any_split(tmp_path):
    """Another number of stages, another schedule and one process read what two stages wrote."""
    _write(tmp_path, JOB, 2)
    for job in (
        toy_job("1f1b", (1, 1, 1, 1), 2),
        toy_job("1f1b", (1,), 2),
        toy_job("zb-v", (1, 1, 1, 1), 2),
        toy_job("2bw", (2, 2), 1),
    ):
        check_resumable(job, latest_checkpoint(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 7}, "has seed 0; the run has 7"),
        ({"microbatch_size": 3}, "has samples_per_batch 4; the run has 6"),
        ({"make_optimizer": partial(torch.optim.SGD, lr=0.1)}, "has optimizer AdamW; .* has SGD"),
        ({"batches": 1}, "is of batch 2; the run has 1"),
        ({"precision": Precision.BF16}, "has precision float32; the run has bf16"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change, message, tmp_path):
    """What would make the run another one is named with both values."""
    _write(tmp_path, JOB, 2)
    with pytest.raises(InputError, match=message):
        check_resumable(replace(JOB, **change), latest_checkpoint(tmp_path))


def test_a_file_that_is_gone_is_named(tmp_path):
    """A replica's share of the optimizer's state would else be missed in silence."""
    stages = _write(tmp_path, JOB, 1)
    write_layers(tmp_path, 2, copies(stages, JOB.model))
    write_layers(tmp_path, 2, copies(stages, JOB.model, with_versions=False), replica=1)
    complete(tmp_path, describe(JOB, 2), kept=1)
    read = latest_checkpoint(tmp_path)
    (read.path / "head.replica_1.safetensors").unlink()
    with pytest.raises(InputError, match=r"update_00000002: lacks head\.replica_1\.safetensors"):
        latest_checkpoint(tmp_path)


def test_what_was_left_aside_is_removed(tmp_path):
    """What an earlier run has written in part becomes part of no checkpoint of this one."""
    _write(tmp_path, JOB, 1)
    write_layers(tmp_path, 2, {"torn": {"a": torch.ones(1)}})
    remove_torn(tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["update_00000001"]


def test_a_version_that_is_needed_and_was_not_kept_is_named(tmp_path):
    """2BW cannot go on from a schedule with one version as if nothing had happened."""
    _write(tmp_path, toy_job("1f1b", (1, 1), 2), 2)
    with pytest.raises(InputError, match=r"lacks version 1 of embedding\.positions, \[8, 16\] on"):
        check_resumable(JOB, latest_checkpoint(tmp_path))


def test_at_most_ten_differences_are_named_with_stage_and_shapes(tmp_path):
    """Of a model of another width, ten parameters are named and the others counted."""
    _write(tmp_path, JOB, 1)
    model = gpt(replace(CONFIG, width=32))
    with pytest.raises(InputError) as raised:
        check_resumable(replace(JOB, model=model), latest_checkpoint(tmp_path))

    assert "has embedding.positions as [8, 16], which is [8, 32] on stage 0" in str(raised.value)
    assert len(str(raised.value).split("; ")) == 11
    assert str(raised.value).endswith(" more")


def test_layers_missing_and_unexpected_are_named(tmp_path):
    """Layers that only the model has and those that only the checkpoint has are told apart."""
    _write(tmp_path, JOB, 1)
    other = gpt(replace(CONFIG, layers=1))
    layers = (other.layers[0], replace(other.layers[1], name="renamed"), other.layers[2])
    model = replace(other, layers=layers)
    job = replace(JOB, model=model, graph=graph_of(model), plan=plan_of(3, (1, 1), 2))
    with pytest.raises(InputError) as raised:
        check_resumable(job, latest_checkpoint(tmp_path))

    assert "lacks layer renamed of stage" in str(raised.value)
    assert "has layer block_1, which the model lacks" in str(raised.value)


def test_settings_out_of_range_are_refused(tmp_path):
    """A checkpoint every 0 batches is refused, and so is keeping none."""
    for change in ({"every_batches": 0}, {"every_batches": 1, "kept": 0}):
        with pytest.raises(InputError, match="it must be at least 1"):
            CheckpointSettings(folder=tmp_path, **change)
