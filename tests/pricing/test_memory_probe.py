"""Bytes kept for the backward, and the most alive on the way."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from diaulos.pricing.memory_probe import kept_bytes, peak_bytes

sizes = st.integers(1, 64)


@given(rows=sizes, columns=sizes)
def test_a_linear_layer_keeps_its_input(rows: int, columns: int) -> None:
    """Input and weight are kept for the backward, each whole."""
    layer = nn.Linear(columns, 3)
    entering = torch.ones(rows, columns, requires_grad=True)
    assert kept_bytes(lambda: layer(entering)) == 4 * (rows * columns + 3 * columns)
    assert kept_bytes(lambda: layer(entering), uncounted=layer.parameters()) == 4 * rows * columns


def test_a_storage_counts_once() -> None:
    """Two operators that keep views of one tensor keep its bytes once."""
    entering = torch.ones(10, 10, requires_grad=True)

    def run() -> Tensor:
        copy = entering + 1
        return (copy[:5].exp().sin().sum()) + (copy.square().sum()) + (copy[5:].cos().sum())

    copy_bytes, exp_bytes = 400, 200
    assert kept_bytes(run, uncounted=[entering]) == copy_bytes + exp_bytes


def test_nothing_is_kept_without_gradients() -> None:
    """What needs no gradient keeps nothing."""
    assert kept_bytes(lambda: torch.ones(10).exp()) == 0


@given(count=st.integers(1, 5), size=sizes)
def test_the_peak_counts_what_is_alive_at_a_time(count: int, size: int) -> None:
    """Tensors held together add up; those dropped one after another do not."""
    assert peak_bytes(lambda: [torch.ones(size) for _ in range(count)]) == 4 * size * count

    def one_after_another() -> None:
        for _ in range(count):
            torch.ones(size)

    assert peak_bytes(one_after_another) == 4 * size


def test_views_and_in_place_results_bring_nothing_new() -> None:
    """A tensor from before does not count, nor does a view of it or a write into it."""
    before = torch.ones(10)

    def run() -> Tensor:
        before.add_(1)
        return before.view(2, 5)[0]

    assert peak_bytes(run) == 0


def test_the_backward_is_followed_too() -> None:
    """The gradient of a leaf is alive at the end of its backward."""
    leaf = torch.ones(100, requires_grad=True)

    def run() -> None:
        leaf.exp().sum().backward()

    # The exponentials, their sum and its gradient, and the gradient of the leaf.
    assert peak_bytes(run) == 4 * (100 + 1 + 1 + 100)
