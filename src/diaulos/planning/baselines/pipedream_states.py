"""The states of PipeDream's planner: how far a graph may have been run when a stage ends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from diaulos.models.graph import LayerGraph
from diaulos.planning.merging.coarsening import coarsen
from diaulos.planning.merging.contraction import identity

Amounts = NDArray[np.float64]
_MOST_STATES = 1500
"""All pairs of them are held at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Sets of layers closed under predecessors, smallest first: the first is empty, the last full.

    A stage is the difference of two nested states.
    """

    members: NDArray[np.bool_]
    """Of each state, by the place of layers in the topological order."""
    nested: NDArray[np.bool_]
    """Whether the first state (row) is smaller than and inside the second (column)."""
    crossing_bytes: Amounts
    """Of the tensors that layers inside hand to layers outside, each once."""

    def __len__(self) -> int:
        return len(self.members)

    def between(self, first: int, last: int) -> list[int]:
        """The places of the layers of the stage between two states."""
        places: list[int] = np.flatnonzero(self.members[last] & ~self.members[first]).tolist()
        return places

    def differences(self, amounts: Sequence[float]) -> Amounts:
        """The sum of an amount of each layer over the stage between each pair of states."""
        sums = self.members.astype(np.float64) @ np.array(amounts, np.float64)
        result: Amounts = sums[None, :] - sums[:, None]
        return result


def pipedream_states(graph: LayerGraph) -> States:
    """The states that PipeDream's planner considers.

    It begins with the first layer that needs no other and adds, in every order, a layer that needs
    one inside, together with all else that this one needs. So other layers without needs enter
    with the first layer that needs them. Where some would never enter, each may at any time.

    Where a graph has more downsets than the planner can hold states, `coarsen` takes the freedom
    away that is worth least; PipeDream asks its users to compress branches there.
    """
    coarse = coarsen(identity(graph), most_downsets=_MOST_STATES)
    order = graph.topological_order
    needs = _needs(graph, coarse.order_edges)
    full = (1 << len(order)) - 1
    masks = _reachable(needs, free=1)
    if full not in masks:
        roots = sum(1 << place for place, needed in enumerate(needs) if not needed)
        masks = _reachable(needs, free=roots)
    ordered = sorted(masks, key=lambda mask: (mask.bit_count(), mask))
    bits = [[mask >> place & 1 for place in range(len(order))] for mask in ordered]
    return _states(graph, np.array(bits, np.bool_))


def _needs(graph: LayerGraph, order_edges: Iterable[tuple[int, int]]) -> list[int]:
    """What each layer of the topological order needs directly, as bits of places."""
    place = {layer: index for index, layer in enumerate(graph.topological_order)}
    needs = [0] * len(place)
    for source, target in (*((e.source, e.target) for e in graph.edges), *order_edges):
        needs[place[target]] |= 1 << place[source]
    return needs


def _reachable(needs: Sequence[int], *, free: int) -> set[int]:
    """All sets made of nothing by adding free layers, and layers that need one inside."""
    closures = [_closure(needs, place) for place in range(len(needs))]
    found, last = {0}, [0]
    while last:
        larger = {
            mask | closures[place]
            for mask in last
            for place, needed in enumerate(needs)
            if not mask >> place & 1 and (needed & mask or free >> place & 1)
        }
        last = list(larger - found)
        found |= larger
    return found


def _closure(needs: Sequence[int], place: int) -> int:
    """A layer and all that it needs, directly or not."""
    found, new = 0, 1 << place
    while new:
        found |= new
        new = reduce(or_, (needs[i] for i in range(len(needs)) if new >> i & 1)) & ~found
    return found


def _states(graph: LayerGraph, members: NDArray[np.bool_]) -> States:
    place = {layer: index for index, layer in enumerate(graph.topological_order)}
    sizes = members.sum(axis=1)
    outside = (~members).astype(np.float32)
    nested = (members.astype(np.float32) @ outside.T == 0) & (sizes[:, None] < sizes[None, :])
    crossing = np.zeros(members.shape)
    for edge in graph.edges:
        source, target = place[edge.source], place[edge.target]
        cut = members[:, source] & ~members[:, target]
        crossing[:, source] = np.maximum(crossing[:, source], np.where(cut, edge.bytes, 0.0))
    return States(members=members, nested=nested, crossing_bytes=crossing.sum(axis=1))
