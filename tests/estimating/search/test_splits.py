"""Blocks are shared out so that the slowest stage is as fast as it can be."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.estimating.search.splits import balanced_shares
from diaulos.estimating.stages import even_shares


def slowest(blocks: list[int], shares: tuple[int, ...], before: int, behind: int) -> int:
    """Seconds of the slowest stage."""
    ends = [sum(shares[:count]) for count in range(len(shares) + 1)]
    seconds = [sum(blocks[first:end]) for first, end in pairwise(ends)]
    seconds[0] += before
    seconds[-1] += behind
    return max(seconds)


def all_shares(blocks: int, stages: int) -> list[tuple[int, ...]]:
    """Every way to share blocks out, with at least one for each stage."""
    return [
        tuple(end - first for first, end in pairwise((0, *cuts, blocks)))
        for cuts in combinations(range(1, blocks), stages - 1)
    ]


@settings(max_examples=400)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.integers(0, 60),
    st.integers(0, 60),
    st.data(),
)
def test_no_shares_are_faster(
    blocks: list[int], before: int, behind: int, data: st.DataObject
) -> None:
    """All ways to share the blocks out are tried; even ones are kept where none are faster."""
    stages = data.draw(st.integers(1, len(blocks)))
    found = balanced_shares(blocks, before=before, behind=behind, stages=stages)
    assert len(found) == stages
    assert sum(found) == len(blocks)
    least = min(slowest(blocks, some, before, behind) for some in all_shares(len(blocks), stages))
    assert slowest(blocks, found, before, behind) == least
    even = even_shares(len(blocks), stages)
    if slowest(blocks, even, before, behind) == least:
        assert found == even


def test_stages_are_as_alike_as_can_be() -> None:
    """A head of a few blocks takes blocks from the last stage, which go to some others."""
    for behind, wanted in ((1.3, 3), (2.6, 2), (5.2, 1)):
        shares = balanced_shares([1.0] * 32, before=0.0, behind=behind, stages=8)
        assert shares[-1] == wanted
        assert set(shares[:-1]) == {4, 5}
