"""Merges that no plan loses anything by: layers that take no time, and layers that are twins.

Every rule is an exchange: a plan that cuts where the contracted graph has no cut is turned into
one that does not, in which no stage takes longer, holds more or is one more. All of them hold for
time per sample and for every schedule's time of a batch, which never grows when a stage does less.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from diaulos.models.graph import Layer, LayerGraph, Option
from diaulos.planning.merging.contraction import Contraction, Group, identity, merge
from diaulos.planning.problem import PlanningProblem


def contract(problem: PlanningProblem) -> Contraction:
    """The problem's graph with fewer downsets and the same least time.

    A layer is *free* if at every degree it has an option that takes no time, reduces and
    synchronises nothing, and holds no memory, unless all layers fit on any device anyhow. With
    edges of a bytes into it and of b bytes out of it, in a flat cluster:

    1. A free layer without successors is merged into its only predecessor, and one without
       predecessors into its only successor. Moved there, it sends nothing.
    2. A free layer with one predecessor u is merged into it if b <= a. Moved to the stage of u, it
       turns a cut of a into one of b there; its own stage no longer receives a and at most
       receives b, and its successors receive as before.
    3. A free layer with one successor w is merged into it if a <= b, a being the sum over its
       predecessors. Moved to the stage of w, it turns a cut of b into cuts of a, in the stage
       that it leaves and in that of w; stages of earlier predecessors send as before.

    Where a stage is left without layers it goes, and with it its devices. On nodes of unequal
    links such a stage may be worth having as a relay, so there these rules are not used.

    Where a tensor with several consumers crosses a border once, b is that of the largest edge, and
    rule 2 needs u to have no other successor: else u's tensor and the free layer's would both
    cross. Where messages are counted, a and b must each be one edge.

    4. Layers with equal options, predecessors, successors and edges are twins: to swap two
       changes no price. So each comes no later than the next, which the order edges say.

    Among plans of the same time another may be picked than from the original graph.
    """
    graph = problem.graph
    merged = _without_free_layers(problem) if problem.cluster.is_flat else identity(graph)
    return replace(merged, order_edges=_twins(merged.graph))


def memory_never_binds(problem: PlanningProblem) -> bool:
    """Whether all layers fit on any device together, whatever the options and the plan."""
    graph, most = problem.graph, problem.microbatches
    held = sum(max(option.memory_bytes(most) for option in layer.options) for layer in graph.layers)
    sent = [edge.bytes for edge in graph.edges]
    for layer in graph.layers:
        for option in layer.options:
            sent += option.input_sync_bytes.values()
            sent += option.output_sync_bytes.values()
    buffers = 2 * sum(sent) if problem.costs.counts_buffers else 0.0
    limit = min(group.memory_bytes for group in problem.cluster.groups)
    return held + buffers + problem.costs.reserve_bytes <= limit


@dataclass(slots=True)
class _Merging:
    """Groups in the making, by the id of their main layer: all their other layers are free."""

    problem: PlanningProblem
    members: dict[int, list[int]]
    before: dict[int, dict[int, float]]
    """Bytes from each predecessor."""
    after: dict[int, dict[int, float]]
    """Bytes to each successor."""
    free: dict[int, Mapping[int, str]]
    """The free option of each free layer at each degree; groups of free layers are free."""
    synchronised: frozenset[int]
    """Layers with an edge over which some option synchronises: they stay as they are."""

    def home_of(self, layer: int) -> int | None:
        """The neighbour that a free layer can be merged into."""
        before, after = list(self.before[layer]), list(self.after[layer])
        if layer in self.synchronised:
            return None
        for neighbours, fits in ((before, self._fits_up), (after, self._fits_down)):
            if (
                len(neighbours) == 1
                and fits(layer, neighbours[0])
                and self._may_join(layer, neighbours[0])
            ):
                return neighbours[0]
        return None

    def _may_join(self, layer: int, home: int) -> bool:
        """Whether the layer is free at every degree that its new stage could have."""
        options = self.problem.graph.layer(home).options
        degrees = {option.tensor_parallel for option in options}
        return home not in self.synchronised and degrees <= self.free[layer].keys()

    def _fits_up(self, layer: int, home: int) -> bool:
        """Rule 2, or 1 where nothing leaves the layer."""
        costs, out = self.problem.costs, self.after[layer].values()
        if not out:
            return True
        if costs.counts_latency and not costs.shared_tensors_once and len(out) > 1:
            return False
        if (costs.counts_latency or costs.shared_tensors_once) and len(self.after[home]) > 1:
            return False
        sent = max(out) if costs.shared_tensors_once else sum(out)
        return sent <= self.before[layer][home]

    def _fits_down(self, layer: int, home: int) -> bool:
        """Rule 3, or 1 where nothing enters the layer."""
        costs, sources = self.problem.costs, self.before[layer]
        if costs.counts_latency and len(sources) > 1:
            return False
        feeds_both = not sources.keys().isdisjoint(self.before[home])
        if (costs.counts_latency or costs.shared_tensors_once) and feeds_both:
            return False  # its two edges would become one, of which the cost model counts less
        return sum(sources.values()) <= self.after[layer][home]

    def join(self, layer: int, home: int) -> None:
        """Merge a free layer into a neighbour."""
        self.members[home] += self.members.pop(layer)
        for near, far in ((self.before, self.after), (self.after, self.before)):
            for other, size in near.pop(layer).items():
                del far[other][layer]
                if other != home:
                    near[home][other] = near[home].get(other, 0.0) + size
                    far[other][home] = near[home][other]
        if home in self.free:
            degrees = self.free[home].keys() & self.free[layer].keys()
            self.free[home] = {degree: self.free[home][degree] for degree in degrees}


def _without_free_layers(problem: PlanningProblem) -> Contraction:
    graph = problem.graph
    state = _Merging(
        problem=problem,
        members={layer.id: [layer.id] for layer in graph.layers},
        before={layer.id: {} for layer in graph.layers},
        after={layer.id: {} for layer in graph.layers},
        free=_free_options(problem),
        synchronised=_synchronised(graph),
    )
    for edge in graph.edges:
        state.after[edge.source][edge.target] = edge.bytes
        state.before[edge.target][edge.source] = edge.bytes
    free = dict(state.free)
    found = True
    while found:
        found = False
        for layer in [layer for layer in graph.topological_order if layer in state.members]:
            home = state.home_of(layer) if layer in state.free else None
            if home is not None:
                state.join(layer, home)
                found = True
    return merge(graph, list(_groups(graph, state.members, free)))


def _groups(
    graph: LayerGraph, members: Mapping[int, list[int]], free: Mapping[int, Mapping[int, str]]
) -> Iterable[Group]:
    """Groups with the options of their main layer; the others take their free one."""
    place = {layer: index for index, layer in enumerate(graph.topological_order)}
    for main, layers in members.items():
        choices = {
            (option.tensor_parallel, option.name): {
                layer: option.name if layer == main else free[layer][option.tensor_parallel]
                for layer in layers
            }
            for option in graph.layer(main).options
        }
        yield Group(layers=tuple(sorted(layers, key=place.__getitem__)), choices=choices)


def _free_options(problem: PlanningProblem) -> dict[int, Mapping[int, str]]:
    """The first free option at each degree that a layer has one at, of layers that have some."""
    memory_counts = not memory_never_binds(problem)
    found: dict[int, Mapping[int, str]] = {}
    for layer in problem.graph.layers:
        names = {
            degree: option.name
            for degree in problem.graph.tensor_parallel_degrees
            for option in reversed(problem.options(layer, degree))
            if _is_free(option, memory_counts=memory_counts)
        }
        if names:
            found[layer.id] = names
    return found


def _is_free(option: Option, *, memory_counts: bool) -> bool:
    held = option.memory_bytes(1) if memory_counts else 0.0
    return option.seconds == option.update_seconds == option.parameter_bytes == held == 0


def _synchronised(graph: LayerGraph) -> frozenset[int]:
    found = set()
    for layer in graph.layers:
        for option in layer.options:
            for sync in (option.input_sync_bytes, option.output_sync_bytes):
                found |= {other for other, size in sync.items() if size > 0}
                found |= {layer.id} if any(sync.values()) else set()
    return frozenset(found)


def _twins(graph: LayerGraph) -> tuple[tuple[int, int], ...]:
    """Pairs of neighbours among layers that are alike in all that a price depends on."""
    surroundings = _surroundings(graph)
    rows: dict[object, list[Layer]] = {}
    for layer_id in graph.topological_order:
        rows.setdefault(surroundings[layer_id], []).append(graph.layer(layer_id))
    pairs = []
    for row in rows.values():
        while row:
            alike = [layer for layer in row if layer.options == row[0].options]
            row[:] = [layer for layer in row if layer.options != row[0].options]
            pairs += [(one.id, two.id) for one, two in pairwise(alike)]
    return tuple(pairs)


def _surroundings(graph: LayerGraph) -> dict[int, object]:
    """Edges of each layer, with what its neighbours synchronise over them."""
    found: dict[int, list[object]] = {layer.id: [] for layer in graph.layers}
    for edge in graph.edges:
        sends = [o.output_sync_bytes.get(edge.target) for o in graph.layer(edge.source).options]
        receives = [o.input_sync_bytes.get(edge.source) for o in graph.layer(edge.target).options]
        found[edge.target].append(("from", edge.source, edge.bytes, *sends))
        found[edge.source].append(("to", edge.target, edge.bytes, *receives))
    return {layer_id: frozenset(edges) for layer_id, edges in found.items()}
