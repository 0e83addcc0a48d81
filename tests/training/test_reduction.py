"""Norms and clipping."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from diaulos.training.reduction import clip_coefficient, squared_norms


def test_the_norm_is_that_of_torch():
    """Squared norms by parameter add up to the norm that torch computes over all of them."""
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(n, generator=generator, dtype=torch.float64) for n in (3, 50, 7)]
    expected = torch.nn.utils.get_total_norm(gradients)

    torch.testing.assert_close(expected, squared_norms(gradients).sum().sqrt())


@given(norm=st.floats(0, 1e6), limit=st.floats(1e-3, 1e3))
def test_clipping_is_that_of_torch(norm, limit):
    """The coefficient is clip / (norm + 1e-6), never above 1."""
    coefficient = clip_coefficient(norm, limit)

    assert 0 < coefficient <= 1
    assert norm * coefficient <= limit


def test_without_a_limit_nothing_is_clipped():
    """No limit, no multiplication."""
    assert clip_coefficient(5.0, None) is None
