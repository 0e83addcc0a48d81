"""Logs beside the records of a run."""

import sys
import types
from dataclasses import replace

import pytest

from diaulos.errors import InputError
from diaulos.training import logs
from diaulos.training.evaluation import EvaluationRecord
from diaulos.training.logs import LogSettings, open_logs, scalars
from tests.training.test_records import STEP

HELD_OUT = EvaluationRecord(batches=2, loss=1.5)


def test_figures_that_are_not_known_are_left_out():
    """All that a step tells, by name, but its number and what is None."""
    figures = scalars(replace(STEP, model_flops_utilization=None, gradient_norm=0.0))

    assert figures["loss"] == 2.5
    assert figures["gradient_norm"] == 0.0
    assert not {"batch", "model_flops_utilization", "loss_scale"} & figures.keys()


def test_without_settings_there_are_no_logs(tmp_path):
    """Nothing is opened and nothing written."""
    with open_logs(LogSettings(), tmp_path) as opened:
        assert not opened
    assert not list(tmp_path.iterdir())


def _tensorboard(folder):
    """What TensorBoard reads: (step, value) by tag."""
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
        EventAccumulator,
    )

    read = EventAccumulator(str(folder / "tensorboard"))
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def test_tensorboard_shows_steps_and_evaluations(tmp_path):
    """Steps are counted from 1, and those after a checkpoint that is gone back to are replaced."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    settings = LogSettings(tensorboard=True)
    with open_logs(settings, tmp_path) as (log,):
        for batch in range(3):
            log.step(replace(STEP, batch=batch))
        log.evaluation(HELD_OUT)
    with open_logs(settings, tmp_path, resumed_updates=2) as (log,):
        log.step(replace(STEP, batch=2, loss=1.25))
    shown = _tensorboard(tmp_path)

    assert [(1, 2.5), (2, 2.5), (3, 1.25)] == shown["train/loss"]
    assert [(2, 1.5)] == shown["evaluation/loss"]
    assert "train/bubble_fraction" in shown


class _Run:
    """A run of W&B that keeps what it is told."""

    def __init__(self):
        self.told = []
        self.finished = False

    def define_metric(self, name, step_metric):
        self.told.append((name, step_metric))

    def log(self, figures):
        self.told.append(figures)

    def finish(self):
        self.finished = True


def test_wandb_is_told_of_steps_and_evaluations(tmp_path, monkeypatch):
    """The project and the folder are given, each figure with its step, and the end."""
    run, given = _Run(), {}
    fake = types.ModuleType("wandb")
    fake.init = lambda **settings: given.update(settings) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(logs, "find_spec", lambda _: object())
    with open_logs(LogSettings(wandb_project="mine"), tmp_path) as (log,):
        log.step(STEP)
        log.evaluation(HELD_OUT)

    assert {"project": "mine", "dir": str(tmp_path), "name": tmp_path.name} == given
    assert run.told[-2]["step"] == 1
    assert run.told[-2]["train/loss"] == 2.5
    assert run.told[-1] == {"batches": 2, "evaluation/loss": 1.5}
    assert run.finished


@pytest.mark.parametrize(
    ("settings", "package"),
    [({"tensorboard": True}, "tensorboard"), ({"wandb_project": "p"}, "wandb")],
)
def test_a_log_without_its_package_is_refused(settings, package, monkeypatch):
    """What to install is said, before any rank is started."""
    monkeypatch.setattr(logs, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=rf"{package} is not installed.*diaulos\[{package}\]"):
        LogSettings(**settings)
