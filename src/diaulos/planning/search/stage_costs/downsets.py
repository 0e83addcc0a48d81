"""Downsets of a layer graph, and the pairs of them: every stage that a plan could have.

A downset is a set of layers closed under successors: what a plan still has to run after its first
stages. Stages are differences of two nested downsets, and a plan is a chain of downsets from all
layers down to none (Piper, section 5, where they are called ideals).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph

MOST_DOWNSETS = 20_000
"""With more, a graph is coarsened before it is searched."""
MOST_PAIRS = 20_000_000
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Downsets:
    """All downsets, smallest first; the first is empty, the last holds all layers.

    `members[i, v]` says whether downset i holds the v-th layer of the topological order.
    """

    members: NDArray[np.bool_]
    level_starts: NDArray[np.int64]
    """Where the downsets of each size begin, from size 0; ends with their number."""

    def __len__(self) -> int:
        return len(self.members)

    def sums(self, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum of an amount of each layer (first axis) over each downset."""
        return self.members.astype(np.int64) @ amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """All pairs of an outer and a smaller inner downset, ordered by the outer one.

    Pair p is the stage `outer[p]` without `inner[p]`. Those of downset i stand from `starts[i]`
    to `starts[i + 1]`.
    """

    inner: NDArray[np.int32]
    outer: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.inner)


def enumerate_downsets(graph: LayerGraph, extra_edges: Sequence[tuple[int, int]] = ()) -> Downsets:
    """The downsets of a graph; a `TooManyStagesError` where there are too many.

    `extra_edges` (ids of source and target) order layers that the graph leaves free.
    """
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    size = len(index)
    follows = np.zeros((size, size), np.float32)
    for source, target in (*((e.source, e.target) for e in graph.edges), *extra_edges):
        follows[index[source], index[target]] = 1
    followers = follows.sum(axis=1)
    levels = [np.zeros((1, size), np.bool_)]
    count = 1
    for _ in range(size):
        free = (levels[-1].astype(np.float32) @ follows.T == followers) & ~levels[-1]
        rows, layers = np.nonzero(free)
        larger = levels[-1][rows]
        larger[np.arange(len(rows)), layers] = True
        levels.append(_distinct_rows(larger))
        count += len(levels[-1])
        if count > MOST_DOWNSETS:
            raise _too_many(f"more than {MOST_DOWNSETS} downsets")
    starts = np.cumsum([0, *map(len, levels)])
    return Downsets(members=np.concatenate(levels), level_starts=starts)


def enumerate_pairs(downsets: Downsets) -> Pairs:
    """All pairs of nested downsets; a `TooManyStagesError` where there are too many."""
    found = list(_nested_rows(downsets.members))
    inner = np.concatenate([inner for _, inner in found])
    outer = np.concatenate([outer for outer, _ in found])
    starts = np.searchsorted(outer, np.arange(len(downsets) + 1))
    return Pairs(inner=inner, outer=outer, starts=starts)


def _distinct_rows(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The rows without repetitions, in the order of their first layers."""
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    return rows[np.unique(keys, return_index=True)[1]]


def _nested_rows(
    members: NDArray[np.bool_],
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Outer and inner downsets, some outer ones at a time."""
    holds = members.astype(np.float32)
    count = 0
    for first in range(1, len(members), _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, len(members))
        outside = (1 - holds[first:last]) @ holds[:last].T
        nested = outside == 0
        nested &= np.arange(last) < np.arange(first, last)[:, None]
        outer, inner = np.nonzero(nested)
        count += len(outer)
        if count > MOST_PAIRS:
            raise _too_many(f"{len(members)} downsets with more than {MOST_PAIRS} nested pairs")
        yield (outer + first).astype(np.int32), inner.astype(np.int32)


class TooManyStagesError(InputError):
    """A graph has more downsets or nested pairs of them than can be searched at once."""


def _too_many(found: str) -> TooManyStagesError:
    return TooManyStagesError(
        f"the graph has {found}; a downset is a set of layers closed under successors",
        f"at most {MOST_DOWNSETS} downsets and {MOST_PAIRS} pairs can be searched at once",
        "merge layers that always run together, such as parallel branches, into one layer",
    )
