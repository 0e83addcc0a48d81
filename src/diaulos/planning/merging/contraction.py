"""A layer graph with some layers merged, and the way back: what is planned and what is meant.

A search looks at every downset of a graph, and there may be very many. Merging layers and ordering
them takes downsets away: `lossless` finds what no plan loses anything by, `coarsening` goes on
where that is not enough.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.planning.plan import Plan, Stage

OptionKey = tuple[int, str]
"""Tensor-parallel degree and name."""
Choices = Mapping[OptionKey, Mapping[int, str]]
"""For each option of a merged layer, the names of its layers' options at that degree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that become one."""

    layers: tuple[int, ...]
    """Ids, in topological order; the first becomes that of the merged layer."""
    choices: Choices


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """A graph that stands for another one with more layers."""

    original: LayerGraph
    graph: LayerGraph
    groups: Mapping[int, Group]
    """What each layer of `graph` stands for in `original`, by its id."""
    order_edges: tuple[tuple[int, int], ...] = ()
    """Pairs of layers of `graph` of which the first shall not stand in a later stage.

    They carry nothing and cost nothing, so they are no edges of the graph, where an edge of no
    bytes may still cost a message. They only make downsets fewer, for `enumerate_downsets`.
    """
    is_lossless: bool = True
    """Whether some plan of the contracted graph is as fast as the fastest of the original."""

    def expand(self, plan: Plan) -> Plan:
        """The plan of the original graph that a plan of the contracted one stands for."""
        stages = tuple(self._expand_stage(stage) for stage in plan.stages)
        return replace(plan, stages=stages)

    def _expand_stage(self, stage: Stage) -> Stage:
        place = {layer: index for index, layer in enumerate(self.original.topological_order)}
        options: dict[int, str] = {}
        for layer in stage.layers:
            if layer not in self.groups:
                raise InputError(
                    f"the plan names layer {layer}", "it is not a plan of the contracted graph"
                )
            options |= self.groups[layer].choices[stage.tensor_parallel, stage.options[layer]]
        return replace(stage, layers=tuple(sorted(options, key=place.__getitem__)), options=options)


def alone(layer: Layer) -> Group:
    """A group of one layer."""
    return Group(
        layers=(layer.id,),
        choices={
            (option.tensor_parallel, option.name): {layer.id: option.name}
            for option in layer.options
        },
    )


def identity(graph: LayerGraph) -> Contraction:
    """A graph that stands for itself."""
    groups = {layer.id: alone(layer) for layer in graph.layers}
    return Contraction(original=graph, graph=graph, groups=groups)


def merge(graph: LayerGraph, groups: Sequence[Group]) -> Contraction:
    """The graph with each group as one layer; `groups` are disjoint and hold all layers.

    A merged layer takes the time and memory of all its layers. An edge between groups carries
    what all edges between their layers do.
    """
    group_of = {layer: group.layers[0] for group in groups for layer in group.layers}
    layers = tuple(_merged_layer(graph, group, group_of) for group in groups)
    return Contraction(
        original=graph,
        graph=replace(graph, layers=layers, edges=_merged_edges(graph, group_of)),
        groups={group.layers[0]: group for group in groups},
    )


def _merged_layer(graph: LayerGraph, group: Group, group_of: Mapping[int, int]) -> Layer:
    own = group.layers[0]
    names = [graph.layer(layer).name for layer in (own, group.layers[-1])]
    return Layer(
        id=own,
        name="..".join(dict.fromkeys(filter(None, names))) or None,
        options=tuple(
            _summed(
                [graph.layer(layer).option(part, degree) for layer, part in chosen.items()],
                name,
                group_of,
                own,
            )
            for (degree, name), chosen in group.choices.items()
        ),
    )


def _summed(options: Sequence[Option], name: str, group_of: Mapping[int, int], own: int) -> Option:
    """One option for all layers of the group `own`, which synchronise nothing inside it."""

    def total(amount: str) -> float:
        return math.fsum(getattr(option, amount) for option in options)

    kinds = [option.fixed_memory.by_kind() for option in options]
    return Option(
        name=name,
        tensor_parallel=options[0].tensor_parallel,
        seconds=total("seconds"),
        forward_seconds=_part(options, "forward_seconds"),
        weight_backward_seconds=_part(options, "weight_backward_seconds"),
        update_seconds=total("update_seconds"),
        recompute=any(option.recompute for option in options),
        parameter_bytes=total("parameter_bytes"),
        activation_bytes=total("activation_bytes"),
        fixed_memory=FixedMemory(
            **{f"{kind}_bytes": math.fsum(held[kind] for held in kinds) for kind in kinds[0]}
        ),
        input_sync_bytes=_outside([o.input_sync_bytes for o in options], group_of, own),
        output_sync_bytes=_outside([o.output_sync_bytes for o in options], group_of, own),
    )


def _part(options: Sequence[Option], amount: str) -> float | None:
    """A part of the seconds, summed; None unless it was measured wherever there are any."""
    parts = [getattr(option, amount) for option in options if option.seconds > 0]
    if None in parts:
        return None
    return min(math.fsum(parts), math.fsum(option.seconds for option in options))


def _outside(
    amounts: Iterable[Mapping[int, float]], group_of: Mapping[int, int], own: int
) -> dict[int, float]:
    """Bytes that layers of a group synchronise with others, by the group of these."""
    sums: dict[int, float] = {}
    for sync in amounts:
        for other, size in sync.items():
            if group_of[other] != own:
                sums[group_of[other]] = sums.get(group_of[other], 0.0) + size
    return sums


def _merged_edges(graph: LayerGraph, group_of: Mapping[int, int]) -> tuple[Edge, ...]:
    sizes: dict[tuple[int, int], list[float]] = {}
    for edge in graph.edges:
        ends = group_of[edge.source], group_of[edge.target]
        if ends[0] != ends[1]:
            sizes.setdefault(ends, []).append(edge.bytes)
    return tuple(
        Edge(source=source, target=target, bytes=math.fsum(some))
        for (source, target), some in sizes.items()
    )
