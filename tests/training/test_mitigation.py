"""Remedies against gradients that come late, and the serial replay that states each."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from diaulos.errors import InputError
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.serial import train_serially
from tests.training.toy import toy_job

RATE = 0.5


def _run(mitigation, *, schedule="2bw", batches=5):
    job = toy_job(
        schedule, (1, 1), 2, batches=batches, make_optimizer=partial(torch.optim.SGD, lr=RATE)
    )
    return replace(job, mitigation=mitigation)


def _weights(run, update):
    """The newest weights after so many updates, from the start and the gradients alone."""
    weights = {name: weight.double() for name, weight in run.versions[0].items()}
    for number in range(update):
        for name, gradient in run.gradients[number].items():
            weights[name] = weights[name] - RATE * gradient.double()
    return weights


def test_flushed_updates_are_those_of_1f1b():
    """So many updates are as with a flush; then batches K-1 and K both see version K-1."""
    mitigated = train_serially(_run(DelayMitigation(flush_updates=3)))
    flushed = train_serially(_run(DelayMitigation(), schedule="1f1b"))

    assert mitigated.losses[:3] == flushed.losses[:3]
    for name, weight in flushed.versions[3].items():
        assert torch.equal(weight, mitigated.versions[3][name])
    assert mitigated.losses[3] != flushed.losses[3]  # at version 2, not 3


def test_versions_are_linear_predictions():
    """Batch t sees W(t-1) + (W(t-1) - W(t-2)); the first two see W(0), and the last is itself."""
    run = train_serially(_run(DelayMitigation(extrapolated_weights=True)))
    for update in range(1, 5):
        newest, before = _weights(run, update), _weights(run, update - 1)
        for name, version in run.versions[update].items():
            predicted = newest[name] + (newest[name] - before[name])
            torch.testing.assert_close(version.double(), predicted, atol=1e-6, rtol=1e-5)
    for name, weight in _weights(run, 5).items():
        torch.testing.assert_close(run.versions[5][name].double(), weight, atol=1e-6, rtol=1e-5)


def test_nothing_is_predicted_for_batches_that_are_flushed():
    """With both remedies the versions that 1F1B computes with are the weights themselves."""
    mitigation = DelayMitigation(flush_updates=3, extrapolated_weights=True)
    mitigated = train_serially(_run(mitigation))
    flushed = train_serially(_run(DelayMitigation(), schedule="1f1b"))

    assert [False, False, True, True] == [mitigation.predicts(update) for update in range(4)]
    assert mitigated.losses[:3] == flushed.losses[:3]
    for update in (1, 2):
        for name, weight in flushed.versions[update].items():
            assert torch.equal(weight, mitigated.versions[update][name])


@pytest.mark.parametrize(
    ("update", "delay", "share"),
    [(0, 1, 0.5), (5, 1, 2**-0.5), (10, 1, 1.0), (0, 3, 0.25), (7, 0, 1)],
)
def test_the_learning_rate_rises_to_its_own(update, delay, share):
    """It is divided by (1 + d) at first, by nothing at the end, and by powers in between."""
    mitigation = DelayMitigation(learning_rate_updates=10)

    assert mitigation.rate_share(update, delay) == pytest.approx(share)


def test_without_remedies_nothing_changes():
    """All are off by default: no flush, no prediction, the whole rate."""
    mitigation = DelayMitigation()

    assert not mitigation.is_any
    assert not mitigation.flushes(0)
    assert not mitigation.predicts(0)
    assert mitigation.rate_share(0, 1) == 1.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DelayMitigation(flush_updates=-1), "flush_updates is -1"),
        (lambda: DelayMitigation(learning_rate_updates=-2), "learning_rate_updates is -2"),
        (
            lambda: _run(DelayMitigation(extrapolated_weights=True), schedule="1f1b"),
            "its gradients are not all one update late",
        ),
        (
            lambda: _run(DelayMitigation(flush_updates=1), schedule="pipedream"),
            "its gradients are not all one update late",
        ),
    ],
)
def test_remedies_that_have_nothing_to_remedy_are_refused(build, message):
    """Numbers below 0, and schedules without the delay of one update."""
    with pytest.raises(InputError, match=message):
        build()
