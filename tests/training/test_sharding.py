"""Parts of parameters."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from diaulos.training.sharding import Part, is_distributed, part_of


@given(rows=st.integers(1, 9), parts=st.integers(1, 4), dim=st.integers(0, 1))
def test_parts_are_those_of_torch(rows, parts, dim):
    """Cut as `torch.chunk` cuts, with empty parts where that gives fewer."""
    whole = torch.arange(rows * rows).reshape(rows, rows)
    chunks = torch.chunk(whole, parts, dim)
    for index in range(parts):
        part = Part(dim, index, parts).cut(whole)
        assert torch.equal(part, chunks[index]) if index < len(chunks) else part.numel() == 0


def test_a_plain_parameter_is_whole():
    """It is no distributed tensor, and its part is all of it."""
    parameter = torch.nn.Parameter(torch.ones(3))

    assert not is_distributed(parameter)
    assert part_of(parameter) == Part()
    assert Part().cut(parameter) is parameter
