"""The serial run, which judges all others, against the plainest training loop there is."""

import torch
from torch.nn.utils import clip_grad_norm_

from diaulos.training.serial import train_serially
from diaulos.training.stage import StageModule, place_layers
from tests.training.toy import toy_job


def _whole_model(job):
    placed = place_layers(job.model, job.graph, job.plan)
    return StageModule([layer for stage in placed for layer in stage], job.seed).double()


def _mean_loss(job, model, batch):
    """The mean loss per token of all microbatches of a batch, as one big batch."""
    pairs = [job.data(batch, microbatch) for microbatch in range(job.plan.microbatches)]
    inputs, targets = (torch.cat(tensors) for tensors in zip(*pairs, strict=True))
    return job.model.loss(model(inputs), targets) / targets.numel()


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
