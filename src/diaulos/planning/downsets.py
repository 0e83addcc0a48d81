"""Downsets of a layer graph, and the pairs of them: every stage that a plan could have.

A downset is a set of layers closed under successors: what a plan still has to run after its first
stages. Stages are differences of two nested downsets, and a plan is a chain of downsets from all
layers down to none (Piper, section 5, where they are called ideals).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph

_MOST_DOWNSETS = 20_000
_MOST_PAIRS = 4_000_000
_BITS_PER_WORD = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Downsets:
    """All downsets, smallest first; the first is empty, the last holds all layers.

    `members[i, v]` says whether downset i holds the v-th layer of the topological order.
    """

    members: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.members)

    def sums(self, amounts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sum of an amount of each layer (first axis) over each downset."""
        return self.members.astype(np.int64) @ amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """All pairs of an outer and a smaller inner downset, ordered by the outer one.

    Pair p is the stage `outer[p]` without `inner[p]`.
    """

    inner: NDArray[np.int64]
    outer: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.inner)


def enumerate_downsets(graph: LayerGraph) -> Downsets:
    """The downsets of a graph; an `InputError` where there are too many to search all."""
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    successors = [
        sum(1 << index[successor] for successor in graph.successors[layer_id])
        for layer_id in graph.topological_order
    ]
    level, masks = [0], [0]
    for _ in successors:
        level = sorted(
            {
                mask | 1 << layer
                for mask in level
                for layer, needed in enumerate(successors)
                if not mask >> layer & 1 and needed & ~mask == 0
            }
        )
        masks += level
        if len(masks) > _MOST_DOWNSETS:
            raise _too_large(f"more than {_MOST_DOWNSETS} downsets")
    size = len(successors)
    bits = [
        np.frombuffer(f"{mask:0{size}b}".encode(), np.uint8)[::-1] == ord("1") for mask in masks
    ]
    return Downsets(members=np.array(bits, dtype=np.bool_))


def enumerate_pairs(downsets: Downsets) -> Pairs:
    """All pairs of nested downsets; an `InputError` where there are too many to search all."""
    words = _pack(downsets.members)
    inner, outer, count = [], [], 0
    for index in range(1, len(downsets)):
        inside = ~(words[:index] & ~words[index]).any(axis=1)
        inner.append(np.flatnonzero(inside))
        outer.append(np.full(len(inner[-1]), index))
        count += len(inner[-1])
        if count > _MOST_PAIRS:
            raise _too_large(f"{len(downsets)} downsets with more than {_MOST_PAIRS} nested pairs")
    return Pairs(inner=np.concatenate(inner), outer=np.concatenate(outer))


def _pack(members: NDArray[np.bool_]) -> NDArray[np.int64]:
    columns = [
        members[:, start : start + _BITS_PER_WORD]
        for start in range(0, members.shape[1], _BITS_PER_WORD)
    ]
    return np.stack([column @ (1 << np.arange(column.shape[1])) for column in columns], axis=1)


def _too_large(found: str) -> InputError:
    return InputError(
        f"the graph has {found}; a downset is a set of layers closed under successors",
        f"the exact planner searches up to {_MOST_DOWNSETS} downsets and {_MOST_PAIRS} pairs",
        "merge layers that always run together, such as parallel branches, into one layer, "
        "or use the equal planner",
    )
