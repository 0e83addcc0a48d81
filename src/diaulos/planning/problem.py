"""What is asked of a planner, and what it answers."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from diaulos.clusters.cluster import Cluster
from diaulos.errors import CheckError, InputError
from diaulos.models.graph import Layer, LayerGraph, Option
from diaulos.planning.evaluation.costs import PIPER, CostModel
from diaulos.planning.evaluation.evaluate import Evaluation, evaluate, fits, held_bytes
from diaulos.planning.evaluation.pipelining import STEADY, Pipelining
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.plan import Plan
from diaulos.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class PlanningProblem:
    """Find the plan with the least time per batch; three of the switches are Piper's ablations."""

    graph: LayerGraph
    cluster: Cluster
    microbatches: int
    """Of one batch: Piper's N."""
    data_parallel: bool = True
    """Whether stages may have replicas."""
    tensor_parallel: bool = True
    """Whether layers may be split over devices."""
    recompute: bool = True
    """Whether options that recompute activations may be used."""
    shard_optimizer: bool = False
    """Whether stages may share the optimizer's state among their replicas (ZeRO-1)."""
    costs: CostModel = PIPER
    pipelining: Pipelining = STEADY

    def __post_init__(self) -> None:
        if self.microbatches < 1:
            raise InputError(f"microbatches is {self.microbatches}", "it must be at least 1")

    @cached_property
    def replicas_limit(self) -> int:
        """The most that data-parallel degrees may sum up to: min(N, K)."""
        return min(self.microbatches, self.cluster.devices)

    @cached_property
    def data_degrees(self) -> tuple[int, ...]:
        """The data-parallel degrees that a stage can have, ascending."""
        if not self.data_parallel:
            return (1,)
        candidates = range(1, self.replicas_limit + 1)
        return tuple(degree for degree in candidates if self.microbatches % degree == 0)

    @cached_property
    def tensor_degrees(self) -> tuple[int, ...]:
        """The tensor-parallel degrees that a stage can have, ascending."""
        most = max(group.devices_per_node for group in self.cluster.groups)
        largest = most if self.tensor_parallel else 1
        return tuple(t for t in self.graph.tensor_parallel_degrees if t <= largest)

    def options(self, layer: Layer, tensor_parallel: int) -> tuple[Option, ...]:
        """The options of a layer that may be used at a degree, in the order of the source."""
        return tuple(
            option
            for option in layer.options_at(tensor_parallel)
            if self.recompute or not option.recompute
        )

    def infeasibility(self) -> str:
        """Why no plan exists: the first layer that cannot run alone, or that none can be cut."""
        for layer in self.graph.layers:
            options = [o for t in self.tensor_degrees for o in self.options(layer, t)]
            if not options:
                return (
                    f"layer {layer.label} has no option at the tensor-parallel degrees "
                    f"{list(self.tensor_degrees)} that are allowed"
                )
            least = min(map(self._least_bytes, options))
            limit = self.cluster.largest_memory_bytes
            if not fits(least, limit):
                return (
                    f"layer {layer.label} needs at least {format_bytes(least)} on each device, "
                    f"even alone in the last stage; the limit is {format_bytes(limit)}, "
                    f"{least - limit:.6g} bytes too little"
                )
        return (
            f"no way to cut the {len(self.graph.layers)} layers into stages on at most "
            f"{self.cluster.devices} devices keeps every stage within "
            f"{format_bytes(self.cluster.largest_memory_bytes)}"
        )

    def _least_bytes(self, option: Option) -> float:
        """What a device holds at least for a layer with this option."""
        kinds = held_bytes(
            [option],
            in_flight=1,
            optimizer_shards=self.data_degrees[-1] if self.shard_optimizer else 1,
            costs=self.costs,
            pipelining=self.pipelining,
        )
        return math.fsum(kinds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningResult:
    """The answer of a planner, priced by `evaluate`."""

    planner: str
    plan: Plan | None
    """None where no plan keeps to the limits."""
    evaluation: Evaluation | None
    proven_optimal: bool
    """Whether it is proven that no plan of the problem is faster (or that there is none)."""
    search_seconds: float
    reason: str | None = None
    """Why there is no plan."""
    lower_bound_seconds: float | None = None
    """No plan of the problem runs a batch in less; None where the planner knows no bound."""
    remark: str | None = None
    """Why optimality is not proven, where a planner that can prove it did not."""

    @property
    def gap(self) -> float | None:
        """By which part of the bound the plan may be slower than the best one."""
        if self.evaluation is None or self.lower_bound_seconds is None:
            return None
        bound, batch = self.lower_bound_seconds, self.evaluation.batch_seconds
        return max(batch / bound - 1, 0.0) if bound > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What a search found."""

    plan: Plan | None
    proven_optimal: bool
    """Whether no plan of the problem is faster (or there is none)."""
    lower_bound_seconds: float | None = None
    """No plan runs a batch in less."""
    remark: str | None = None
    """Why optimality is not proven."""


class Planner(Protocol):
    """What turns a problem into an answer."""

    def __call__(self, problem: PlanningProblem) -> PlanningResult:
        """The best plan that this planner finds."""
        ...


def refuse_all_but_piper(problem: PlanningProblem, *, planner: str) -> None:
    """An `InputError` for a problem that Piper's model does not know, where a planner needs it."""
    group = problem.cluster.groups[0]
    for is_so, what in (
        (not problem.cluster.is_flat, "the cluster has several nodes"),
        (group.link.duplex, "the link is duplex"),
        (group.speed != 1, f"the devices have speed {group.speed:g}"),
        (problem.costs != PIPER, "the costs are not Piper's"),
        (problem.pipelining != STEADY, f"the schedule is {problem.pipelining.name}"),
        (problem.shard_optimizer, "the optimizer may be sharded"),
    ):
        if is_so:
            raise InputError(
                what,
                f"the {planner} planner knows Piper's model alone: one node, its costs, no flush",
                "use another planner, or Piper's model",
            )


def answer(
    problem: PlanningProblem,
    search: Callable[[PlanningProblem], SearchResult],
    *,
    planner: str,
) -> PlanningResult:
    """Run a search and check what it found: nothing leaves a planner that breaks a rule."""
    start = time.perf_counter()
    found = search(problem)
    result = PlanningResult(
        planner=planner,
        plan=found.plan,
        evaluation=None,
        proven_optimal=found.proven_optimal,
        search_seconds=time.perf_counter() - start,
        lower_bound_seconds=found.lower_bound_seconds,
        remark=found.remark,
    )
    if found.plan is None:
        reason = problem.infeasibility()
        if not found.proven_optimal:
            reason = f"the {planner} planner found no plan: {reason}"
        return replace(result, reason=reason)
    given = (problem.graph, found.plan, problem.cluster, problem.costs, problem.pipelining)
    broken = violations(*given)
    if broken:
        raise CheckError(
            f"the {planner} planner made a plan that breaks its rules, please report this: "
            + "; ".join(broken)
        )
    evaluation = evaluate(*given)
    if result.proven_optimal:
        result = replace(result, lower_bound_seconds=evaluation.batch_seconds)
    return replace(result, evaluation=evaluation)
