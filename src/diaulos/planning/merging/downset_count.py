"""How many downsets a graph has, without making them."""

from collections.abc import Iterable, Sequence

from diaulos.models.graph import LayerGraph


def count_downsets(
    graph: LayerGraph, order_edges: Iterable[tuple[int, int]] = (), *, most: int
) -> int | None:
    """The number of sets of layers closed under successors, both kinds of edges counted.

    None if there are more than `most`.
    """
    edges = [*((edge.source, edge.target) for edge in graph.edges), *order_edges]
    line = depth_first_line([layer.id for layer in graph.layers], edges)
    return count_on_line(line, edges, most=most)


def depth_first_line(nodes: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """The nodes, each after its predecessors; a node comes right after what made it free.

    So the nodes of a branch stay together.
    """
    missing = dict.fromkeys(nodes, 0)
    following: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target in edges:
        missing[target] += 1
        following[source].append(target)
    stack = [node for node in reversed(nodes) if missing[node] == 0]
    line = []
    while stack:
        node = stack.pop()
        line.append(node)
        for target in reversed(following[node]):
            missing[target] -= 1
            if missing[target] == 0:
                stack.append(target)
    return line


def count_on_line(
    line: Sequence[int], edges: Iterable[tuple[int, int]], *, most: int
) -> int | None:
    """The same as `count_downsets` for nodes in a line along which all edges go.

    Goes along the line and keeps, for each way to say of the nodes passed so far whether they
    stand before the cut (a node may only where all its predecessors do), how often it occurs, by
    its bits of those nodes that still have a successor to come. A beginning of the line always
    has an end, so the count never falls, and no more ways are kept than there are downsets.
    """
    needed, passed = _needed_and_passed(line, edges)
    counts = {0: 1}
    for index, before in enumerate(needed):
        kept, node = ~passed[index], 1 << index
        following: dict[int, int] = {}
        for state, count in counts.items():
            after = state & kept
            following[after] = following.get(after, 0) + count
            if before & ~state == 0:
                inside = (state | node) & kept
                following[inside] = following.get(inside, 0) + count
        counts = following
        if sum(counts.values()) > most:
            return None
    return sum(counts.values())


def _needed_and_passed(
    line: Sequence[int], edges: Iterable[tuple[int, int]]
) -> tuple[list[int], list[int]]:
    """For each place of the line, the bits of its predecessors and of what it is the last to use.

    A node without successors is the last to use itself.
    """
    place = {node: index for index, node in enumerate(line)}
    needed, last_use = [0] * len(line), list(range(len(line)))
    for source, target in edges:
        needed[place[target]] |= 1 << place[source]
        last_use[place[source]] = max(last_use[place[source]], place[target])
    passed = [0] * len(line)
    for index, last in enumerate(last_use):
        passed[last] |= 1 << index
    return needed, passed
