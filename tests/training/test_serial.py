"""The serial run, which judges all others, against the plainest training loop there is."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from diaulos.models.layers import Reduction
from diaulos.training.serial import train_serially
from diaulos.training.stage import StageModule, place_layers
from tests.training.toy import CONFIG, MaskedTokens, toy_job


def _whole_model(job):
    placed = place_layers(job.model, job.graph, job.plan)
    layers = [layer for stage in placed for layer in stage]
    return StageModule(layers, job.seed).double()


def _mean_loss(job, model, batch):
    """The mean loss per token of all microbatches of a batch, as one big batch."""
    pairs = [job.data(batch, microbatch) for microbatch in range(job.plan.microbatches)]
    inputs, targets = (torch.cat(tensors) for tensors in zip(*pairs, strict=True))
    return job.model.loss(*model((inputs,), 0), targets) / targets.numel()


def test_without_delay_it_is_a_plain_loop_over_whole_batches():
    """Microbatches, replicas and scaling add up to the mean per token over the whole batch."""
    job = toy_job("1f1b", (2, 1), 3, clip_norm=0.1)
    model = _whole_model(job)
    parameters = [parameter for _, parameter in model.named_weights()]
    optimizer = job.make_optimizer(parameters)
    run = train_serially(job)
    for batch in range(job.batches):
        optimizer.zero_grad()
        loss = _mean_loss(job, model, batch)
        loss.backward()
        clip_grad_norm_(parameters, 0.1)
        optimizer.step()
        assert abs(run.losses[batch] - float(loss.detach())) < 1e-5
    for name, parameter in model.named_weights():
        torch.testing.assert_close(
            run.versions[job.batches][name].double(), parameter, atol=1e-4, rtol=1e-3
        )


def test_with_delay_each_gradient_is_of_the_version_before():
    """Batch t's gradient is that of its loss at W(max(t-1, 0)); batches 0 and 1 both see W(0)."""
    job = toy_job("2bw", (1, 1), 2)
    run = train_serially(job)
    model = _whole_model(job)
    for batch in range(job.batches):
        with torch.no_grad():
            for name, parameter in model.named_weights():
                parameter.copy_(run.versions[max(batch - 1, 0)][name])
        model.zero_grad()
        _mean_loss(job, model, batch).backward()
        for name, parameter in model.named_weights():
            expected = parameter.grad.float()
            torch.testing.assert_close(run.gradients[batch][name], expected, atol=1e-6, rtol=1e-4)


def _gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.float() for name, parameter in model.named_weights()}


@pytest.mark.parametrize(
    ("reduction", "mode"), [(Reduction.MASKED_MEAN, "mean"), (Reduction.SUM, "sum")]
)
def test_reductions_are_those_of_torch_over_the_whole_batch(reduction, mode):
    """Masks that differ by microbatch, one of them full, give torch's masked mean or sum."""
    job = toy_job("1f1b", (1, 1), 3, batches=1)
    job = replace(job, data=MaskedTokens(), model=replace(job.model, reduction=reduction))
    model = _whole_model(job)
    pairs = [job.data(0, microbatch) for microbatch in range(job.plan.microbatches)]
    inputs, targets = (torch.cat(tensors) for tensors in zip(*pairs, strict=True))
    loss = cross_entropy(model((inputs,), 0)[0].flatten(0, 1), targets.flatten(), reduction=mode)
    expected = _gradients(model, loss)
    run = train_serially(job)

    assert run.losses[0] == pytest.approx(float(loss.detach()), rel=1e-5)
    for name, gradient in run.gradients[0].items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-6, rtol=1e-4)


def test_targets_that_are_all_masked_give_no_gradient():
    """An update without any target to predict has loss 0 and gradients 0, and not NaN."""
    job = toy_job("pipedream", (1, 1), 3, batches=1)
    job = replace(
        job, data=MaskedTokens(), model=replace(job.model, reduction=Reduction.MASKED_MEAN)
    )
    run = train_serially(job)

    assert run.losses[2] == 0
    assert all(not gradient.any() for gradient in run.gradients[2].values())


def test_tied_parameters_are_one():
    """Two copies with summed gradients are one shared parameter, in gradient, norm and weights."""
    job = toy_job("1f1b", (1, 1), 2, batches=2, clip_norm=0.1, config=replace(CONFIG, tied=True))
    run = train_serially(job)
    model = _whole_model(job)
    embedding, head = model.layers[0].tokens, model.layers[-1].scores
    head.weight = embedding.weight
    parameters = list(model.parameters())
    optimizer = job.make_optimizer(parameters)
    for batch in range(job.batches):
        optimizer.zero_grad()
        _mean_loss(job, model, batch).backward()
        expected = embedding.weight.grad.float()
        for name in ("embedding.tokens.weight", "head.scores.weight"):
            found = run.gradients[batch][name]
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-3)
        clip_grad_norm_(parameters, 0.1)
        optimizer.step()
    for version in run.versions.values():
        assert torch.equal(version["embedding.tokens.weight"], version["head.scores.weight"])
    found = run.versions[2]["head.scores.weight"].double()
    torch.testing.assert_close(found, head.weight, atol=1e-4, rtol=1e-3)
