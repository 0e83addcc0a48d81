"""Backwards in halves, and their parts, against whole ones."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from diaulos.models.gpt import gpt
from diaulos.training.halves import backward_of_input
from diaulos.training.stage import PlacedLayer, StageModule
from tests.training.toy import CONFIG


def _stage(recompute):
    specs = gpt(CONFIG).layers[1:]
    module = StageModule([PlacedLayer(spec=spec, recompute=recompute) for spec in specs], 0)
    forward = module.forward
    module.forward = lambda entering: forward((entering,), microbatch=0)[0]
    return module


def _entering():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(
        2, CONFIG.sequence_length, CONFIG.width, generator=generator
    ).requires_grad_()


def _whole(module, entering):
    module(entering).square().sum().backward()
    return [parameter.grad for parameter in module.parameters()], entering.grad


def _in_halves(module, entering, at_once=()):
    """The gradients after the first half and after the second, and that of the input."""
    root = get_gradient_edge(module(entering).square().sum())
    weights = list(module.parameters())
    half = backward_of_input([root], None, [entering], weights=weights, at_once=at_once)
    first = [None if weight.grad is None else weight.grad.clone() for weight in weights]
    half.run()
    return first, [weight.grad for weight in weights], entering.grad


def test_two_halves_are_a_whole_to_the_bit():
    """The first half gives the input's gradient and no other, the second all others."""
    expected, of_input = _whole(_stage(recompute=False), _entering())
    first, gradients, entering = _in_halves(_stage(recompute=False), _entering())

    assert all(gradient is None for gradient in first)
    assert torch.equal(of_input, entering)
    assert all(map(torch.equal, expected, gradients))


def test_recomputed_layers_are_done_at_once():
    """Their weights have their gradients after the first half, which runs them again only once."""
    module = _stage(recompute=True)
    expected, of_input = _whole(_stage(recompute=True), _entering())
    runs = []
    module.layers[0].register_forward_pre_hook(lambda *_: runs.append(1))
    first, gradients, entering = _in_halves(
        module, _entering(), at_once=module.recomputed_parameters()
    )

    assert len(runs) == 2
    assert torch.equal(of_input, entering)
    assert all(map(torch.equal, expected, first))
    assert all(map(torch.equal, expected, gradients))


class _UsedTwice(nn.Module):
    """One weight that joins in two places, one through a computation of its own, one in one."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.twice, self.scaled, self.once = (
            nn.Parameter(torch.randn(4, 4, generator=generator)) for _ in range(3)
        )

    def forward(self, hidden):
        hidden = torch.tanh(hidden @ self.twice) @ self.scaled.exp()
        return hidden @ self.twice + hidden @ self.once


def test_a_weight_that_joins_twice_gets_all_its_gradient():
    """A weight used in two places is done in the first half, all others in the second."""
    expected, of_input = _whole(_UsedTwice(), torch.ones(2, 4, requires_grad=True))
    first, gradients, entering = _in_halves(_UsedTwice(), torch.ones(2, 4, requires_grad=True))

    assert [True, False, False] == [gradient is not None for gradient in first]
    assert torch.equal(of_input, entering)
    assert all(map(torch.equal, expected, gradients))


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_microbatches_add_up(reverse):
    """Second halves may wait behind other first halves, and add to what is there."""
    whole, split = _stage(recompute=False), _stage(recompute=False)
    inputs = [_entering() * (index + 1) for index in range(2)]
    for entering in inputs:
        _whole(whole, entering.detach().requires_grad_())
    halves = []
    for entering in inputs:
        leaf = entering.detach().requires_grad_()
        root = get_gradient_edge(split(leaf).square().sum())
        halves.append(backward_of_input([root], None, [leaf], list(split.parameters()), at_once=()))
    for half in reversed(halves) if reverse else halves:
        half.run()

    for expected, found in zip(whole.parameters(), split.parameters(), strict=True):
        assert torch.equal(expected.grad, found.grad)


class _SeveralOutputs(nn.Module):
    """Two inputs, one of them passed on, and an output that depends on a weight alone."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.mixed, self.alone = (
            nn.Parameter(torch.randn(4, 4, generator=generator)) for _ in range(2)
        )

    def forward(self, hidden, skipped):
        return torch.tanh(hidden @ self.mixed) + skipped, skipped, self.alone.exp()


def test_several_tensors_that_enter_and_leave_are_done_as_one_graph():
    """What only passes adds its gradient, and what no input reaches is done in the first half."""
    results = []
    for in_halves in (False, True):
        module = _SeveralOutputs()
        entering = [torch.full((2, 4), value, requires_grad=True) for value in (0.5, 2.0)]
        roots = [get_gradient_edge(output) for output in module(*entering)]
        gradients = [torch.full((2, 4), 1.0), torch.full((2, 4), 3.0), torch.full((4, 4), 2.0)]
        if in_halves:
            weights = list(module.parameters())
            half = backward_of_input(roots, gradients, entering, weights=weights, at_once=())
            assert module.mixed.grad is None
            half.run()
        else:
            torch.autograd.backward(roots, gradients)
        results.append([*(t.grad for t in entering), *(p.grad for p in module.parameters())])

    assert all(map(torch.equal, *results))
    assert torch.equal(results[0][1], torch.full((2, 4), 4.0))
