"""Modules cut by their graphs, against the modules themselves."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn

from diaulos.errors import InputError
from diaulos.models.exported.export import exported
from diaulos.models.gpt import summed_cross_entropy
from diaulos.models.layers import build_layer, meta_layer, run_layer
from tests.models.exported.toys import SAMPLES, Skips, seeded, skips_inputs


def _cut(module, cuts=(), **static):
    inputs, targets = skips_inputs()
    return exported(module, inputs, targets, loss=summed_cross_entropy, keywords=static, cuts=cuts)


def _run(layers, stream):
    passed = [stream]
    for layer in layers:
        passed.append(run_layer(layer, passed[-1], recompute=False))
    return passed


def test_the_layers_do_what_the_module_does():
    """Outputs and gradients are equal to the bit, with skips, ties, masks and static arguments."""
    module = seeded(Skips)
    static = {"scale": 0.5, "mode": "add", "nothing": None}
    model = _cut(module, **static)
    layers = [build_layer(spec, 0) for spec in model.layers]
    inputs, _ = skips_inputs(3)
    (found,) = _run(layers, inputs)[-1]
    expected = module(*inputs, **static)
    found.square().sum().backward()
    expected.square().sum().backward()

    assert torch.equal(expected, found)
    weights = dict(module.named_parameters(remove_duplicate=False))
    gradients = {
        f"{spec.name}.{name}": parameter.grad
        for spec, layer in zip(model.layers, layers, strict=True)
        for name, parameter in layer.named_parameters()
    }
    assert {"out.out.weight": "tokens.out.weight"} == model.ties
    gradients["tokens.out.weight"] += gradients.pop("out.out.weight")
    assert len(gradients) == len(list(module.parameters()))
    for name, gradient in gradients.items():
        torch.testing.assert_close(weights[name.partition(".")[2]].grad, gradient)


def test_each_tensor_is_passed_on_to_its_last_use_and_no_further():
    """The mask goes to where it is used last, and skips from where they are made to the way up."""
    model = _cut(seeded(Skips), cuts=("tokens", "down.1", "up.0", "up.2"))
    inputs, _ = skips_inputs()
    passed = _run([build_layer(spec, 0) for spec in model.layers], inputs)

    assert ["tokens", "down_1", "up_0", "up_2"] == [spec.name for spec in model.layers]
    kinds = [[str(t.dtype).removeprefix("torch.") for t in stream] for stream in passed]
    assert kinds == [
        ["int64", "bool", "float32"],
        ["bool", "float32"],
        ["float32", "float32", "float32", "float32"],
        ["float32", "float32"],
        ["float32"],
    ]


def test_layers_survive_pickling_and_the_meta_device():
    """Ranks get them by pickle, and find out shapes without numbers."""
    model = _cut(seeded(Skips))
    layers = pickle.loads(pickle.dumps(model.layers))
    inputs, _ = skips_inputs()
    expected = _run([build_layer(spec, 0) for spec in model.layers], inputs)[-1]
    without = _run([meta_layer(spec) for spec in layers], tuple(t.to("meta") for t in inputs))[-1]

    assert torch.equal(expected[0], _run([build_layer(spec, 0) for spec in layers], inputs)[-1][0])
    assert without[0].shape == expected[0].shape


def test_dropout_follows_the_mode_of_the_layer():
    """What was exported while training drops nothing in an evaluation."""
    module = seeded(partial(Skips, dropout=0.5))
    layers = [build_layer(spec, 0) for spec in _cut(module).layers]
    inputs, _ = skips_inputs()
    dropped = _run(layers, inputs)[-1][0]
    whole = _run([layer.eval() for layer in layers], inputs)[-1][0]

    assert not torch.equal(dropped, whole)
    assert torch.equal(module.eval()(*inputs), whole)


class _Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.Buffer(torch.arange(3))
        self.inner = nn.Linear(3, 3)

    def forward(self, hidden):
        return self.inner(hidden) + self.steps.to(hidden.device, torch.float32)


def test_layers_compute_where_their_inputs_are():
    """The device on which a module was traced does not stick to its layers."""
    model = exported(_Steps(), (torch.ones(2, 3),), torch.ones(2), loss=summed_cross_entropy)
    stream = _run([meta_layer(spec) for spec in model.layers], (torch.ones(2, 3, device="meta"),))

    assert stream[-1][0].device.type == "meta"


class _Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, hidden):
        return self.inner(hidden) if hidden.sum() > 0 else hidden


class _Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, hidden):
        return self.norm(hidden)


class _DropsAttention(nn.Module):
    def forward(self, hidden):
        return nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.1)


REFUSED = {
    "torch.export cannot trace _Branches": (_Branches, (2, 3)),
    "_Counts changes its buffers norm.running_mean": (_Counts, (2, 3)),
    "attention leaves out a share of 0.1": (_DropsAttention, (1, 1, 2, 3)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_cut_is_refused_with_what_would_work(message):
    """Branches on data, running statistics and dropout inside of attention."""
    make, shape = REFUSED[message]
    with pytest.raises(InputError, match=message):
        exported(make(), (torch.ones(shape),), torch.ones(2), loss=summed_cross_entropy)


def test_cuts_must_be_modules_that_run():
    """A name that is none is said."""
    with pytest.raises(InputError, match=r"up\.7 never run"):
        _cut(seeded(Skips), cuts=("tokens", "up.7"))


def test_a_module_is_exported_for_one_size_of_microbatch():
    """Another size is refused, with the one that was exported."""
    with pytest.raises(InputError, match=f"exported for microbatches of {SAMPLES}"):
        _cut(seeded(Skips)).example(SAMPLES + 1)


def test_the_module_stays_as_it_was():
    """Exporting changes neither weights nor the module's own copies."""
    module = seeded(Skips)
    before = copy.deepcopy(module.state_dict())
    build_layer(_cut(module).layers[0], 0).get_parameter("out.weight").data.zero_()

    for name, tensor in module.state_dict().items():
        assert torch.equal(before[name], tensor)
