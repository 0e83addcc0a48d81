"""The simulator: when every action of a schedule happens, and what each rank then holds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.planning.plan import Plan, Stage
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.check import check
from diaulos.schedules.generators import generate
from diaulos.schedules.order import execution_order
from diaulos.schedules.schedule import PipelineShape, Schedule
from diaulos.schedules.timeline import Event, MemoryPoint, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """What one replica of a stage takes and holds."""

    forward_seconds: float
    """Of one microbatch."""
    backward_seconds: float
    """Of one microbatch."""
    update_seconds: float = 0.0
    """Of the optimizer, once per batch."""
    reduce_seconds: float = 0.0
    """Of the sum of the gradients over replicas, once per batch, beside the computations.

    A rank's reductions run one after another.
    """
    output_bytes: float = 0.0
    """Sent to the next stage per microbatch; as much comes back as a gradient."""
    activation_bytes: float = 0.0
    """Held for each microbatch in flight."""
    fixed_bytes: float = 0.0
    """Held all the time."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} is {value!r}", "it must be finite and at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Between any two ranks; each direction carries one message at a time."""

    latency_seconds: float = 0.0
    bandwidth_bytes_per_second: float = math.inf

    @staticmethod
    def of(cluster: Cluster) -> "Link":
        """The link of a cluster, the slowest where it has several."""
        return Link(
            latency_seconds=cluster.slowest_link.latency_seconds,
            bandwidth_bytes_per_second=cluster.slowest_link.bandwidth_bytes_per_second,
        )

    def seconds(self, size_bytes: float) -> float:
        """How long the link is taken by a message, without its latency."""
        return size_bytes / self.bandwidth_bytes_per_second


def simulate(schedule: Schedule, costs: Sequence[StageCosts], link: Link) -> Timeline:
    """The timeline of a schedule whose stages have these costs.

    Each rank does its actions in order. Sends and reductions run beside the computations; a
    receive waits for its message and an update for the reductions of all ranks. Events are the
    forwards, backwards and updates.
    """
    if len(costs) != schedule.shape.stages:
        raise InputError(
            f"there are costs of {len(costs)} stages", f"the schedule has {schedule.shape.stages}"
        )
    clock = _Clock(schedule, costs, link)
    for rank, action in execution_order(schedule):
        clock.advance(rank, action)
    return Timeline(
        name=schedule.name,
        microbatches=schedule.shape.microbatches,
        events=tuple(clock.events),
        memory=tuple(clock.memory),
    )


@dataclass
class _Clock:
    """The time of every rank and link while a schedule unrolls."""

    schedule: Schedule
    costs: Sequence[StageCosts]
    link: Link
    events: list[Event] = field(default_factory=list)
    memory: list[MemoryPoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = self.schedule.shape
        self.now = [0.0] * shape.ranks
        self.reducer_free = [0.0] * shape.ranks
        self.link_free: dict[tuple[int, int], float] = {}
        self.arrival: dict[Action, float] = {}
        self.reduced: dict[int, float] = {}
        self.held = [self.costs[shape.stage_of(rank)].fixed_bytes for rank in range(shape.ranks)]
        self.memory += [MemoryPoint(rank, 0.0, held) for rank, held in enumerate(self.held)]

    def advance(self, rank: int, action: Action) -> None:
        """Let one action happen; all that it waits for has happened."""
        cost = self.costs[action.stage]
        if action.kind.is_send:
            self._send(rank, action)
        elif action.kind.is_receive:
            self.now[rank] = max(self.now[rank], self.arrival.pop(action.matching_send()))
        elif action.kind is Kind.REDUCE:
            done = max(self.now[rank], self.reducer_free[rank]) + cost.reduce_seconds
            self.reducer_free[rank] = done
            self.reduced[action.number] = max(done, self.reduced.get(action.number, 0.0))
        elif action.kind is Kind.UPDATE:
            self.now[rank] = max(self.now[rank], self.reduced[action.number])
            self._spend(rank, action, cost.update_seconds)
        elif action.kind is Kind.FORWARD:
            self._hold(rank, cost.activation_bytes)
            self._spend(rank, action, cost.forward_seconds)
        else:
            self._spend(rank, action, cost.backward_seconds)
            self._hold(rank, -cost.activation_bytes)

    def _spend(self, rank: int, action: Action, seconds: float) -> None:
        start = self.now[rank]
        self.now[rank] = start + seconds
        self.events.append(Event(rank, action, start, self.now[rank]))

    def _hold(self, rank: int, more_bytes: float) -> None:
        self.held[rank] += more_bytes
        self.memory.append(MemoryPoint(rank, self.now[rank], self.held[rank]))

    def _send(self, rank: int, action: Action) -> None:
        forwards = action.kind is Kind.SEND_FORWARD
        receiving_stage = action.stage + (1 if forwards else -1)
        boundary = action.stage if forwards else receiving_stage
        path = (rank, self.schedule.shape.rank_of(receiving_stage, action.number))
        start = max(self.now[rank], self.link_free.get(path, 0.0))
        end = start + self.link.seconds(self.costs[boundary].output_bytes)
        self.link_free[path] = end
        self.arrival[action] = end + self.link.latency_seconds


def simulate_plan(
    graph: LayerGraph, plan: Plan, cluster: Cluster, *, schedule: str, batches: int
) -> Timeline:
    """The timeline of a plan under the schedule of this name, checked before it is simulated."""
    actions = generate(schedule, PipelineShape.of(plan), batches)
    check(actions)
    return simulate(actions, plan_costs(graph, plan, cluster), Link.of(cluster))


def plan_costs(graph: LayerGraph, plan: Plan, cluster: Cluster) -> tuple[StageCosts, ...]:
    """The costs of each stage of a plan.

    Where a layer's forward and backward were not measured apart, the backward counts as twice the
    forward. The reduction is that of a ring, 2 (d-1)/d of the parameters.
    """
    sent = _boundary_bytes(graph, plan)
    return tuple(
        _stage_costs(graph, stage, output, cluster)
        for stage, output in zip(plan.stages, sent, strict=True)
    )


def _stage_costs(
    graph: LayerGraph, stage: Stage, output_bytes: float, cluster: Cluster
) -> StageCosts:
    options = [
        graph.layer(layer).option(stage.options[layer], stage.tensor_parallel)
        for layer in stage.layers
    ]
    seconds = math.fsum(option.seconds for option in options)
    forward = math.fsum(
        option.seconds / 3 if option.forward_seconds is None else option.forward_seconds
        for option in options
    )
    parameter_bytes = math.fsum(option.parameter_bytes for option in options)
    ring = 2 * (stage.data_parallel - 1) / stage.data_parallel
    return StageCosts(
        forward_seconds=forward,
        backward_seconds=max(seconds - forward, 0.0),
        update_seconds=math.fsum(option.update_seconds for option in options),
        reduce_seconds=ring * parameter_bytes / cluster.slowest_link.bandwidth_bytes_per_second,
        output_bytes=output_bytes,
        activation_bytes=math.fsum(option.activation_bytes for option in options),
        fixed_bytes=math.fsum(option.fixed_bytes for option in options),
    )


def _boundary_bytes(graph: LayerGraph, plan: Plan) -> tuple[float, ...]:
    """What each stage hands to the next: its own tensors and those that only pass through."""
    stage_of = {layer: index for index, stage in enumerate(plan.stages) for layer in stage.layers}
    return tuple(
        math.fsum(
            edge.bytes
            for edge in graph.edges
            if stage_of[edge.source] <= boundary < stage_of[edge.target]
        )
        for boundary in range(len(plan.stages))
    )
