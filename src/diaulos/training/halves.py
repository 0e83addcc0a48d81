"""The backward of a microbatch in two halves: for the stage's input first, for its weights later.

The autograd graph of a stage has a path from its output to its input, and beside it weights that
join at nodes of the path: a matrix product, a norm. The first half follows the path alone and keeps
the gradient that arrives at each such node; the second half goes from there to the weights. Both
do the operations of a whole backward, each once, on the same numbers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge


@dataclass(slots=True)
class _Join:
    """A node of the path with the weights that join there, and the gradient that arrives."""

    node: Node
    weights: list[Tensor]
    arrived: tuple[Tensor | None, ...] = ()

    def backward(self) -> None:
        pairs = [(i, gradient) for i, gradient in enumerate(self.arrived) if gradient is not None]
        edges = [GradientEdge(self.node, index) for index, _ in pairs]
        torch.autograd.backward(edges, [gradient for _, gradient in pairs], inputs=self.weights)


@dataclass(slots=True)
class WeightHalf:
    """The half of a backward that is left when the gradient of the input is there."""

    joins: list[_Join] = field(default_factory=list)

    def run(self) -> None:
        """Add to the gradients of the weights."""
        for join in self.joins:
            join.backward()


def backward_of_input(
    roots: Sequence[GradientEdge],
    gradients: Sequence[Tensor] | None,
    entering: Sequence[Tensor],
    weights: Sequence[Tensor],
    at_once: Iterable[Tensor],
) -> WeightHalf:
    """Add to the gradients of what entered, and give the half for the weights, to be run later.

    The weights `at_once` get their gradients now: those of layers that are recomputed, whose
    activations would otherwise be kept or computed once more. So do weights that join in more than
    one place, and those that reach a root without meeting the path.
    """
    nodes = [root.node for root in roots]
    leaves = {get_gradient_edge(weight).node: weight for weight in weights}
    ends = [get_gradient_edge(tensor).node for tensor in entering]
    path = _path(nodes, ends)
    joins = _joins(path, ends, leaves)
    apart = [w for node in nodes if node not in path for w in _weights_beside(node, path, leaves)]
    now = {id(weight): weight for weight in (*at_once, *_repeated(joins), *apart)}
    for join in joins:
        join.weights = [weight for weight in join.weights if id(weight) not in now]
    joins = [join for join in joins if join.weights]
    with _noting_arrivals(joins):
        torch.autograd.backward(
            roots, gradients, inputs=[*entering, *now.values()], retain_graph=True
        )
    return WeightHalf(joins)


def _joins(
    path: Mapping[Node, None], ends: Sequence[Node], leaves: Mapping[Node, Tensor]
) -> list[_Join]:
    found = [_Join(node, _weights_beside(node, path, leaves)) for node in path if node not in ends]
    return [join for join in found if join.weights]


def _path(roots: Sequence[Node], ends: Sequence[Node]) -> dict[Node, None]:
    """The nodes between roots and ends, these included, in an order that is always the same."""
    parents: dict[Node, list[Node]] = defaultdict(list)
    seen, waiting = set(roots), list(roots)
    while waiting:
        node = waiting.pop()
        for child in _children(node):
            parents[child].append(node)
            if child not in seen:
                seen.add(child)
                waiting.append(child)
    path, waiting = dict.fromkeys(ends), list(ends)
    while waiting:
        for parent in parents[waiting.pop()]:
            if parent not in path:
                path[parent] = None
                waiting.append(parent)
    return path


def _weights_beside(
    node: Node, path: Mapping[Node, None], leaves: Mapping[Node, Tensor]
) -> list[Tensor]:
    """The weights that are reached from a node of the path without following the path."""
    found: list[Tensor] = []
    seen: set[Node] = set()
    waiting = [node]
    while waiting:
        for child in _children(waiting.pop()):
            if child not in path and child not in seen:
                seen.add(child)
                waiting.append(child)
                if child in leaves:
                    found.append(leaves[child])
    return found


def _children(node: Node) -> Iterator[Node]:
    return (child for child, _ in node.next_functions if child is not None)


def _repeated(joins: Sequence[_Join]) -> list[Tensor]:
    """Weights of more than one join."""
    counts: dict[int, int] = defaultdict(int)
    for join in joins:
        for weight in join.weights:
            counts[id(weight)] += 1
    return [weight for join in joins for weight in join.weights if counts[id(weight)] > 1]


@contextmanager
def _noting_arrivals(joins: Sequence[_Join]) -> Iterator[None]:
    handles = [join.node.register_prehook(_note_in(join)) for join in joins]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _note_in(join: _Join) -> Callable[[tuple[Tensor | None, ...]], None]:
    def note(arrived: tuple[Tensor | None, ...]) -> None:
        join.arrived = arrived

    return note
