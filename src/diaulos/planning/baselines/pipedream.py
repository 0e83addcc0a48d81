"""The planner of PipeDream (Narayanan et al., SOSP 2019, section 3.1), in its own cost model.

With T the seconds of a stage for one minibatch, P its parameter bytes, m its replicas and B the
bandwidth, a stage takes

    (T + 4 (m-1) P / (m B)) / m

and each of its borders with a bytes crossing takes 2 a / (m B); computation and communication
overlap, so the slowest of all of these is the time of the pipeline. Gradients are summed for every
minibatch. Dynamic programming over nested states finds the stages and replicas with the least such
time for all machines given.

On nodes the same is done twice: on the devices of a node, for every stage that a node could be
given, and then on nodes, with the times that these take. A state is a set of layers that may have
run when others have not (see `pipedream_states`).

This is what the published code computes with `--activation_compression_ratio 1`, with two of its
traits: what leaves the first stage is charged to the second one alone, and the sum of gradients
over nodes is divided by the devices of a node for first stages alone. A third is left out: beside a
branch it counts a tensor again that does not cross.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.errors import InputError
from diaulos.models.graph import Layer, Option
from diaulos.planning.baselines.pipedream_levels import Level
from diaulos.planning.baselines.pipedream_states import Amounts, States, pipedream_states
from diaulos.planning.evaluation.evaluate import evaluate, fits, held_bytes
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem, PlanningResult, SearchResult, answer


def pipedream(problem: PlanningProblem) -> PlanningResult:
    """The plan that PipeDream's planner finds, priced as all plans are.

    It knows no tensor parallelism and no recomputation; layers take their fastest option of that
    kind. It uses all devices of a cluster of equal nodes, as far as data-parallel degrees that
    divide the microbatches allow; where a stage is replicated inside nodes and over them, its
    degree is the largest such one up to their product. Stages keep to the memory of the devices by
    this project's account. An `InputError` for devices that differ and for layers without a plain
    option.
    """
    return answer(
        problem,
        lambda given: SearchResult(plan=_search(given), proven_optimal=False),
        planner="pipedream",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStage:
    """A stage as PipeDream's planner sees it."""

    layers: tuple[int, ...]
    """Ids, in topological order."""
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What PipeDream's planner answers."""

    seconds: float
    """Of a minibatch in steady state, by its cost model."""
    stages: tuple[PipelineStage, ...]


def pipedream_pipeline(problem: PlanningProblem) -> Pipeline | None:
    """The pipeline that PipeDream's planner finds; None where nothing fits."""
    options = _plain_options(problem)
    states, order = pipedream_states(problem.graph), problem.graph.topological_order
    levels = _levels(problem, states, options)
    seconds = float(levels[-1].run(0).best_seconds[-1])
    if not np.isfinite(seconds):
        return None
    return Pipeline(
        seconds=seconds,
        stages=tuple(
            PipelineStage(layers=tuple(order[i] for i in states.between(*ends)), replicas=replicas)
            for *ends, replicas in reversed(list(_stages(levels, 0, len(states) - 1)))
        ),
    )


def _search(problem: PlanningProblem) -> Plan | None:
    pipeline = pipedream_pipeline(problem)
    if pipeline is None:
        return None
    names = {
        layer: option.name
        for layer, option in zip(
            problem.graph.topological_order, _plain_options(problem), strict=True
        )
    }
    plan = Plan(
        stages=tuple(
            Stage(
                layers=stage.layers,
                data_parallel=max(d for d in problem.data_degrees if d <= stage.replicas),
                tensor_parallel=1,
                options={layer: names[layer] for layer in stage.layers},
            )
            for stage in pipeline.stages
        ),
        microbatches=problem.microbatches,
    )
    # On nodes, the memory of a stage is only known when all stages are.
    priced = evaluate(problem.graph, plan, problem.cluster, problem.costs, problem.pipelining)
    held = [fits(price.memory_bytes, price.memory_limit_bytes) for price in priced.stages]
    return plan if all(held) else None


def _plain_options(problem: PlanningProblem) -> list[Option]:
    """The option that each layer runs with, in topological order."""
    return [
        _plain_option(problem, problem.graph.layer(layer))
        for layer in problem.graph.topological_order
    ]


def _plain_option(problem: PlanningProblem, layer: Layer) -> Option:
    options = [option for option in problem.options(layer, 1) if not option.recompute]
    if not options:
        raise InputError(
            f"layer {layer.label} has no option without recomputation at tensor-parallel degree 1",
            "the pipedream planner knows no others",
            "use the exact planner",
        )
    return min(options, key=lambda option: option.seconds)


def _levels(
    problem: PlanningProblem, states: States, options: Sequence[Option]
) -> tuple[Level, ...]:
    """The devices of a node and then nodes, as far as there is a microbatch for each device."""
    cluster, group = problem.cluster, problem.cluster.groups[0]
    if len(cluster.groups) > 1:
        raise InputError(
            f"the cluster has {len(cluster.groups)} groups of devices",
            "the pipedream planner knows equal devices alone",
            "use the exact planner",
        )
    devices = min(group.devices_per_node, problem.replicas_limit)
    nodes = min(group.nodes, problem.replicas_limit // devices)
    seconds = states.differences([option.seconds / group.speed for option in options])
    parameters = states.differences([option.parameter_bytes for option in options])
    inside = Level.of(
        states,
        np.where(states.nested, seconds, np.inf),
        parameters,
        machines=devices,
        below=1,
        bandwidth_bytes_per_second=group.link.bandwidth_bytes_per_second,
        degrees=problem.data_degrees,
        fits=_Memory.of(problem, states, options).fits,
    )
    if nodes == 1:
        return (inside,)
    between = Level.of(
        states,
        np.array([inside.run(start).best_seconds for start in range(len(states))]),
        parameters,
        machines=nodes,
        below=devices,
        bandwidth_bytes_per_second=cluster.link.bandwidth_bytes_per_second,
        degrees=problem.data_degrees,
        fits=lambda _total, _replicas: states.nested,
    )
    return inside, between


def _stages(levels: Sequence[Level], start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Both states and all replicas of each stage of the best pipeline, from the last one back."""
    *lower, level = levels
    for begin, until, replicas in level.run(start).stages(end):
        if not lower:
            yield begin, until, replicas
        else:
            for first, last, inside in _stages(lower, begin, until):
                yield first, last, inside * replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """What stages hold, for each pair of states."""

    problem: PlanningProblem
    activation_bytes: Amounts
    """For each microbatch in flight."""
    other_bytes: Amounts

    @classmethod
    def of(cls, problem: PlanningProblem, states: States, options: Sequence[Option]) -> "_Memory":
        other = states.differences([_fixed_bytes(problem, option) for option in options])
        if problem.costs.counts_buffers:
            crossing = states.crossing_bytes
            other += 2 * (crossing[:, None] + crossing[None, :])
        return cls(
            problem=problem,
            activation_bytes=states.differences([option.activation_bytes for option in options]),
            other_bytes=other + problem.costs.reserve_bytes,
        )

    def fits(self, total: int, replicas: int) -> NDArray[np.bool_]:
        """Which stages fit, `total` being the sum of replicas from them on.

        Where those of all stages count, it is as if they were on all devices.
        """
        problem = self.problem
        if problem.pipelining.defers_weight_backward:
            total = problem.replicas_limit
        count = problem.pipelining.in_flight(total, replicas, problem.microbatches)
        limit = problem.cluster.groups[0].memory_bytes
        held = self.activation_bytes * count + self.other_bytes
        result: NDArray[np.bool_] = held <= limit
        return result


def _fixed_bytes(problem: PlanningProblem, option: Option) -> float:
    """What a layer holds beside activations; temporary memory is summed, which is no less."""
    held = held_bytes(
        [option],
        in_flight=0,
        optimizer_shards=1,
        costs=problem.costs,
        pipelining=problem.pipelining,
    )
    return sum(held.values()) - problem.costs.reserve_bytes
