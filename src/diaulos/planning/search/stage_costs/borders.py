"""What the cut edges of every possible stage cost, for all pairs of downsets at once.

An edge enters a stage if it crosses the border of the outer downset (its source is outside, its
target inside) and its target is not in the inner one; it leaves the stage if it crosses the border
of the inner downset and its source is in the outer one. An edge that crosses both borders skips
over the stage.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.stage_costs.downsets import Downsets, Pairs
from diaulos.planning.search.stage_costs.fixed_point import Units

_PAIRS_AT_ONCE = 1 << 20
_Ends = Sequence[tuple[int, int]]


def cut_edges(
    ends: _Ends, downsets: Downsets, pairs: Pairs, entering: Units, leaving: Units
) -> Units:
    """The sum over the edges that enter or leave each pair's stage.

    `ends` are the source and target of each edge by index, `entering` and `leaving` what it costs
    the stage of its target and of its source.
    """
    if not ends:
        return np.zeros(len(pairs), np.int64)
    sources, targets = np.array(ends).T
    crossing = downsets.members[:, targets] & ~downsets.members[:, sources]
    cut: Units = (crossing @ entering)[pairs.outer]
    cut += (crossing @ leaving)[pairs.inner]
    for bits, amounts in _by_eights(crossing, entering + leaving):
        for first in range(0, len(pairs), _PAIRS_AT_ONCE):
            some = slice(first, first + _PAIRS_AT_ONCE)
            cut[some] -= amounts[bits[pairs.outer[some]] & bits[pairs.inner[some]]]
    return cut


def shared_tensors(
    ends: _Ends, downsets: Downsets, pairs: Pairs, entering: Units, leaving: Units
) -> Units:
    """The same where the edges of one source carry one tensor that crosses a border once.

    Of the edges that enter a stage from one source, and of those that leave it to others, the
    costliest counts.
    """
    by_source: dict[int, list[int]] = {}
    for edge, (source, _) in enumerate(ends):
        by_source.setdefault(source, []).append(edge)
    single = [edges[0] for edges in by_source.values() if len(edges) == 1]
    cut = cut_edges([ends[e] for e in single], downsets, pairs, entering[single], leaving[single])
    members = downsets.members.T
    for source, edges in by_source.items():
        if len(edges) > 1:
            outside, outer_only = ~members[source], members[source]
            into, out_of = np.zeros_like(cut), np.zeros_like(cut)
            for edge in edges:
                target = members[ends[edge][1]]
                after = target[pairs.inner]
                inside = target[pairs.outer] & ~after
                np.maximum(into, np.where(inside, entering[edge], 0), out=into)
                np.maximum(out_of, np.where(after, leaving[edge], 0), out=out_of)
            source_inside = outer_only[pairs.outer] & ~outer_only[pairs.inner]
            cut += np.where(outside[pairs.outer], into, 0) + np.where(source_inside, out_of, 0)
    return cut


def _by_eights(
    crossing: NDArray[np.bool_], amounts: Units
) -> Iterator[tuple[NDArray[np.uint8], Units]]:
    """Eight edges at a time: which of them each downset crosses, and the sum for each subset."""
    useful = np.flatnonzero((crossing.sum(axis=0) > 1) & (amounts > 0))
    for first in range(0, len(useful), 8):
        some = useful[first : first + 8]
        weights = 1 << np.arange(len(some))
        subsets = (np.arange(1 << len(some))[:, None] & weights) > 0
        yield (crossing[:, some] @ weights).astype(np.uint8), subsets @ amounts[some]
