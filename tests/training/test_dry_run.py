"""What a run would be, against what ranks really hold."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.models.layers import LayerSpec
from diaulos.pricing.memory_probe import kept_bytes
from diaulos.schedules.actions import Kind
from diaulos.training.dry_run import dry_run
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.optimizers import Muon, TorchOptimizer
from diaulos.training.precision import Precision
from diaulos.training.stage import StageModule, place_layers
from diaulos.training.weights import WeightVersions
from tests.training.toy import CONFIG, toy_job

CLUSTER = Cluster.flat(devices=4, memory_bytes=1e9, bandwidth_bytes_per_second=1e9)
ADAMW = partial(torch.optim.AdamW, lr=1e-2)
MUON = Muon(
    learning_rate=0.02,
    others=TorchOptimizer(name="adamw", learning_rate=1e-2),
    layers_of_others=("embedding", "head"),
).factory()


def _held(job, stage):
    """Bytes of all that stands in a rank's memory after an update, by kind; gradients apart."""
    placed = place_layers(job.model, job.graph, job.plan)[stage]
    module = StageModule(placed, job.seed, dtype=job.precision.computing)
    weights = WeightVersions(
        module,
        job.first_schedule.weight_versions[stage],
        job.make_optimizer,
        precision=job.precision,
        extrapolated=job.mitigation.extrapolated_weights,
    )
    newest = weights.newest_weights()
    weights.update([torch.ones_like(own, dtype=job.precision.updating) for own in newest])
    states = weights.optimizer_state().values()
    state = sum(t.nbytes for own in states for t in own.values() if t is not None and t.ndim)
    banks = {
        own.untyped_storage().data_ptr(): own.nbytes
        for version in weights.alive
        for _, own in weights.named(version)
    }
    return {
        "weights and versions": sum(banks.values()),
        "masters": sum(own.nbytes for own in weights.masters().values()),
        "optimizer": state,
    }


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.BF16])
@pytest.mark.parametrize("make_optimizer", [ADAMW, partial(torch.optim.SGD, lr=1.0), MUON])
@pytest.mark.parametrize("extrapolated", [False, True])
def test_weights_and_their_optimizer_are_those_of_a_real_rank(
    precision, make_optimizer, extrapolated
):
    """Versions, masters and state, byte by byte, whatever the optimizer keeps."""
    job = toy_job("2bw", (1, 1), 2, precision=precision, make_optimizer=make_optimizer)
    job = replace(job, mitigation=DelayMitigation(extrapolated_weights=extrapolated))
    for stage, account in enumerate(dry_run(job, CLUSTER).accounts):
        found, expected = account.bytes_by_kind, _held(job, stage)
        assert expected["weights and versions"] == found["weights"] + found["versions"]
        assert expected["masters"] == found["masters"]
        assert expected["optimizer"] == found["optimizer"]
        assert found["gradients"] == 2 * 4 * account.parameters


@pytest.mark.parametrize("recompute", [False, True])
def test_activations_are_those_of_a_real_microbatch(recompute):
    """What the graph of a stage's output keeps on the CPU, and its input."""
    config = replace(CONFIG, dropout=0.1)  # with it attention is computed alike on all devices
    job = toy_job("1f1b", (1, 1), 2, config=config, recompute=recompute)
    account = dry_run(job, CLUSTER).accounts[0]
    module = StageModule(place_layers(job.model, job.graph, job.plan)[0], job.seed)
    tokens, _ = job.data(0, 0)
    tokens = tokens.contiguous()
    kept = kept_bytes(
        lambda: module((tokens,), 0), uncounted=(tokens, *module.parameters(), *module.buffers())
    )

    assert account.in_flight == 2
    assert account.bytes_by_kind["activations"] == 2 * (kept + tokens.nbytes)


def test_shards_hold_their_parts():
    """Of two shards each has half of what is split, and less of what is kept."""
    whole = dry_run(toy_job("2bw", (1,), 2), CLUSTER).accounts[0]
    (half,) = dry_run(toy_job("2bw", (1,), 2, shards=(2,)), CLUSTER).accounts
    sequence = toy_job("2bw", (1,), 2, shards=(2,), sequence_parallel=True)
    (least,) = dry_run(sequence, CLUSTER).accounts

    assert half.ranks == (0, 1)
    assert whole.parameters / 2 < half.parameters < 0.6 * whole.parameters
    kept = [own.bytes_by_kind["activations"] for own in (whole, half, least)]
    assert kept[0] > kept[1] > kept[2]


def test_a_sharded_optimizer_is_counted_where_it_is():
    """Two replicas that share it have about half of its state each."""
    job = toy_job("1f1b", (2,), 2)
    sharded = toy_job("1f1b", (2,), 2, sharded_optimizer=True)
    (alone,), (shared,) = (dry_run(each, CLUSTER).accounts for each in (job, sharded))

    state = [own.bytes_by_kind["optimizer"] for own in (alone, shared)]
    assert state[0] / 2 <= state[1] < 0.6 * state[0]


def test_ranks_edges_and_actions_are_those_of_the_schedule():
    """Every rank stands in one account, with its stages, layers, and work of a batch."""
    job = toy_job("interleaved", (1,) * 4, 4, chunks=2)
    found = dry_run(job, CLUSTER)

    assert [(0,), (1,)] == [account.ranks for account in found.accounts]
    assert [(0, 2), (1, 3)] == [account.stages for account in found.accounts]
    layers = [name for account in found.accounts for name in account.layers]
    assert sorted(layers) == sorted(spec.name for spec in job.model.layers)
    assert ["float32[2, 8, 16]"] * 3 == [str(form) for form in found.edges]
    for account in found.accounts:
        assert account.actions_per_batch[Kind.FORWARD] == 8
        assert account.actions_per_batch[Kind.UPDATE] == 2


def test_memory_is_held_against_the_device():
    """What is too much for it does not fit."""
    job = toy_job("2bw", (1, 1), 2)
    need = max(account.total_bytes for account in dry_run(job, CLUSTER).accounts)
    for memory_bytes, fits in ((need * 1.01, True), (need * 0.99, False)):
        cluster = Cluster.flat(devices=2, memory_bytes=memory_bytes, bandwidth_bytes_per_second=1e9)
        assert fits == all(account.fits for account in dry_run(job, cluster).accounts)


def test_layers_that_do_not_fit_each_other_are_named():
    """The layer, its stage and what comes to it."""
    model = gpt(CONFIG)
    wrong = LayerSpec(name="head", build=partial(nn.Linear, 17, 256))
    job = toy_job("2bw", (1, 1), 2)
    job = replace(job, model=replace(model, layers=(*model.layers[:-1], wrong)))
    with pytest.raises(InputError, match=r"layer head on stage 1 cannot take float32\[2, 8, 16\]"):
        dry_run(job, CLUSTER)
