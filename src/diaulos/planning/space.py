"""All that the plans of a problem are made of, priced: what the exact search searches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diaulos.models.graph import LayerGraph
from diaulos.planning.downsets import Downsets, Pairs, enumerate_downsets, enumerate_pairs
from diaulos.planning.increments import Units
from diaulos.planning.layer_costs import LayerCosts, cost_units, layer_costs, settings
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.stage_costs import StageCosts, stage_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The stages of all plans of a problem, with costs in units.

    The bounds in `settings` are made tighter while the space is searched.
    """

    graph: LayerGraph
    downsets: Downsets
    pairs: Pairs
    settings: Sequence[StageCosts]
    edge_ends: Sequence[tuple[int, int]]
    """Source and target of each edge, by their indices in topological order."""
    devices: int
    replicas_limit: int
    memory_limit: int
    least_work: Units
    """Time that the layers of a downset take at least, times the devices that they take it on."""
    least_time: int
    """What no plan can be faster than."""

    @property
    def stage_weight(self) -> int:
        """By what devices are multiplied where devices and stages are packed into one number."""
        return len(self.graph.layers) + 1


def build_space(problem: PlanningProblem) -> Space | None:
    """The space of a problem; None where some layer has no option at all."""
    graph, units = problem.graph, cost_units(problem)
    downsets = enumerate_downsets(graph)
    pairs = enumerate_pairs(downsets)
    layers = [layer_costs(problem, setting, units) for setting in settings(problem)]
    if not layers or np.all([costs.missing for costs in layers], axis=0).any():
        return None
    index = {layer_id: i for i, layer_id in enumerate(graph.topological_order)}
    least_work = downsets.sums(_least_work(layers))
    return Space(
        graph=graph,
        downsets=downsets,
        pairs=pairs,
        settings=[
            stage_costs(
                graph,
                downsets,
                pairs,
                costs,
                memory_limit=units.memory.limit,
                most_in_flight=problem.replicas_limit,
            )
            for costs in layers
        ],
        edge_ends=[(index[edge.source], index[edge.target]) for edge in graph.edges],
        devices=problem.cluster.devices,
        replicas_limit=problem.replicas_limit,
        memory_limit=units.memory.limit,
        least_work=least_work,
        least_time=max(
            int(least_work[-1]) // problem.cluster.devices, _least_time(problem, layers)
        ),
    )


def _least_work(layers: Sequence[LayerCosts]) -> Units:
    """Of each layer, the least time of its options times the shards that they run on."""
    works = [
        np.where(costs.missing, 2**62, costs.times.min(axis=1) * costs.setting.tensor_parallel)
        for costs in layers
    ]
    result: Units = np.min(works, axis=0)
    return result


def _least_time(problem: PlanningProblem, layers: Sequence[LayerCosts]) -> int:
    """The time of the slowest layer, each at the degrees that suit it best."""
    best = np.full(len(problem.graph.layers), 2**62)
    for costs in layers:
        for replicas in costs.setting.data_degrees:
            if replicas * costs.setting.tensor_parallel <= problem.cluster.devices:
                times = costs.times.min(axis=1) + (replicas - 1) * costs.reduction
                best = np.where(costs.missing, best, np.minimum(best, times // replicas))
    return int(best.max())
