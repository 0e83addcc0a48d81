"""Ordering layers until a graph has few enough downsets to be searched; plans may lose by it."""

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.planning.merging.contraction import Contraction
from diaulos.planning.merging.downset_count import count_downsets, depth_first_line


def coarsen(contraction: Contraction, *, most_downsets: int) -> Contraction:
    """The contraction with so many order edges that it has at most so many downsets.

    Layers are laid in a line, branch after branch, and neighbours on it that may run in parallel
    are put in the order of the line: the pairs with the least work first, since there a cut
    between them balances least, and no more pairs than needed. Prices stay as they are; what is
    lost are plans that would take these layers in another order.

    Raises `InputError` for a graph of that many layers or more, which has one downset more even
    when all its layers are in order.
    """
    graph, order = contraction.graph, contraction.order_edges
    if len(graph.layers) >= most_downsets:
        raise InputError(
            f"the graph has {len(graph.layers)} layers",
            f"with at most {most_downsets} downsets it can have {most_downsets - 1}",
            "merge layers that always run together into one layer",
        )
    pairs = _pairs(graph, order)

    def is_enough(number: int) -> bool:
        edges = (*order, *pairs[:number])
        return count_downsets(graph, edges, most=most_downsets) is not None

    number = bisect_left(range(len(pairs)), x=True, key=is_enough)
    edges = (*order, *pairs[:number])
    is_lossless = contraction.is_lossless and not number
    return replace(contraction, order_edges=edges, is_lossless=is_lossless)


def _pairs(graph: LayerGraph, order: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Neighbours on the line that no edge orders, the least work first."""
    edges = [*((edge.source, edge.target) for edge in graph.edges), *order]
    line = depth_first_line([layer.id for layer in graph.layers], edges)
    work = {
        layer.id: min(option.seconds * option.tensor_parallel for option in layer.options)
        for layer in graph.layers
    }
    # Neighbours that any path joins are joined by an edge: nothing stands between them.
    ordered = set(edges)
    free = [pair for pair in pairwise(line) if pair not in ordered]
    return sorted(free, key=lambda pair: work[pair[0]] + work[pair[1]])
