"""Whether the exact planner finds what the exhaustive one finds, on many random small problems.

Usage: python benchmarks/oracle.py [PROBLEMS]

For each objective so many problems (2,000 unless said otherwise), the same in every run. Both
planners' batch times are compared to one part in 10^11; without a flush in Piper's model, where
ties are broken by a rule, their plans as well.
"""

import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.table import Table

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.evaluation.costs import Collective, CostModel
from diaulos.planning.evaluation.pipelining import (
    GPIPE,
    ONE_F_ONE_B,
    PIPELININGS,
    STEADY,
    ZERO_BUBBLE,
)
from diaulos.planning.exact import exact
from diaulos.planning.problem import PlanningProblem, PlanningResult

EXACTLY = 1e-11
ONE_GROUP = (((2, 2),), ((2, 3),), ((2, 4),), ((3, 2),))
"""Nodes and devices of each."""
TWO_GROUPS = (((1, 4), (1, 4)), ((2, 2), (1, 3)), ((1, 2), (2, 2)))


def amount(rng: random.Random, most: int = 60) -> float:
    """Tenths, so that equal sums are likely, and binary fractions only approximate them."""
    return rng.randint(0, most) / 10


def memory(rng: random.Random) -> float:
    """Tight or loose."""
    return rng.choice((6.0, 8.0, 12.3, 20.0, 30.0, 1000.0))


def piper(rng: random.Random, *, most_layers: int = 5, alike: bool = False) -> PlanningProblem:
    """A problem of Piper's model: any graph, up to four options for each layer and degree.

    Those that are `alike` reduce and synchronise the same bytes.
    """
    ids = rng.sample(range(most_layers), rng.randint(2, most_layers))
    density = rng.choice((0.3, 0.6, 1.0))
    ends = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :] if rng.random() < density]
    edges = tuple(Edge(source=a, target=b, bytes=amount(rng)) for a, b in ends)
    return PlanningProblem(
        graph=LayerGraph(
            layers=tuple(
                Layer(id=i, options=options(rng, i, ends, alike=alike or rng.random() < 0.5))
                for i in ids
            ),
            edges=edges,
        ),
        cluster=Cluster.flat(
            devices=rng.randint(1, 8),
            memory_bytes=memory(rng),
            bandwidth_bytes_per_second=rng.choice((0.3, 1.0, 10.0)),
        ),
        microbatches=rng.choice((1, 2, 4, 6, 8, 12)),
        data_parallel=rng.random() < 0.8,
        recompute=rng.random() < 0.8,
    )


def options(
    rng: random.Random, layer: int, ends: list[tuple[int, int]], *, alike: bool
) -> tuple[Option, ...]:
    """One to four options at each of one or two degrees."""
    found = []
    for degree in rng.choice(((1,), (1,), (1, 2), (1, 2), (2,))):
        traffic = sent(rng, layer, ends)
        for number in range(rng.randint(1, 4)):
            parameters, received, sends = traffic if alike else sent(rng, layer, ends)
            found.append(
                Option(
                    name=f"option {number}",
                    tensor_parallel=degree,
                    seconds=amount(rng),
                    parameter_bytes=parameters,
                    activation_bytes=amount(rng) / 4,
                    fixed_memory=FixedMemory(unspecified_bytes=amount(rng) / 3),
                    recompute=number > 0 and rng.random() < 0.5,
                    input_sync_bytes=received,
                    output_sync_bytes=sends,
                )
            )
    return tuple(found)


def sent(
    rng: random.Random, layer: int, ends: list[tuple[int, int]]
) -> tuple[float, dict[int, float], dict[int, float]]:
    """Parameters that are reduced, and what is synchronised over each edge."""
    received = {a: amount(rng, 20) for a, b in ends if b == layer}
    sends = {b: amount(rng, 20) for a, b in ends if a == layer}
    return amount(rng, 30), received, sends


def link(rng: random.Random) -> Link:
    """With and without latency, half and full duplex."""
    return Link(
        bandwidth_bytes_per_second=rng.choice((0.3, 1.0, 10.0)),
        latency_seconds=rng.choice((0.0, 0.1)),
        duplex=rng.random() < 0.5,
    )


def cluster(rng: random.Random, shapes: tuple[tuple[tuple[int, int], ...], ...]) -> Cluster:
    """Groups of nodes of unequal memory and speed."""
    groups = [
        DeviceGroup(
            name=f"group {number}",
            nodes=nodes,
            devices_per_node=devices,
            memory_bytes=memory(rng),
            link=link(rng),
            speed=rng.choice((1.0, 2.0)),
        )
        for number, (nodes, devices) in enumerate(rng.choice(shapes))
    ]
    return Cluster(groups=tuple(groups), link=link(rng))


def costs(rng: random.Random) -> CostModel:
    """Any combination of what may count."""
    return CostModel(
        collective=rng.choice(list(Collective)),
        shared_tensors_once=rng.random() < 0.5,
        counts_latency=rng.random() < 0.5,
        counts_buffers=rng.random() < 0.5,
        temporary_once=rng.random() < 0.5,
        reserve_bytes=rng.choice((0.0, 1.5)),
    )


def by_kind(rng: random.Random, given: PlanningProblem) -> PlanningProblem:
    """The problem with the memory of its options divided among kinds, and parts of their time."""

    def divided(option: Option) -> Option:
        names = ("parameters", "gradients", "optimizer", "versions", "temporary", "unspecified")
        held = {f"{name}_bytes": amount(rng, 15) for name in rng.sample(names, 3)}
        part = rng.choice((None, 0.25, 0.7))
        return replace(
            option,
            fixed_memory=FixedMemory(**held),
            weight_backward_seconds=None if part is None else part * option.seconds,
        )

    layers = tuple(
        replace(layer, options=tuple(map(divided, layer.options))) for layer in given.graph.layers
    )
    return replace(given, graph=replace(given.graph, layers=layers))


def detailed(rng: random.Random) -> PlanningProblem:
    """A problem on nodes with any costs, without a flush."""
    given = by_kind(rng, piper(rng, most_layers=4, alike=True))
    shapes = ONE_GROUP if rng.random() < 0.5 else TWO_GROUPS
    return replace(given, cluster=cluster(rng, shapes), costs=costs(rng))


def sharded(rng: random.Random) -> PlanningProblem:
    """A problem in which the optimizer's state may be shared among replicas."""
    return replace(by_kind(rng, piper(rng)), shard_optimizer=True)


def everything(rng: random.Random) -> PlanningProblem:
    """A problem on nodes with any costs and schedule, sharded optimizers allowed or not."""
    return replace(
        detailed(rng),
        shard_optimizer=rng.random() < 0.5,
        pipelining=rng.choice(list(PIPELININGS.values())),
    )


OBJECTIVES: dict[str, Callable[[random.Random], PlanningProblem]] = {
    "steady state": piper,
    "GPipe": lambda rng: replace(by_kind(rng, piper(rng, alike=True)), pipelining=GPIPE),
    "1F1B": lambda rng: replace(by_kind(rng, piper(rng, alike=True)), pipelining=ONE_F_ONE_B),
    "ZB-H1": lambda rng: replace(by_kind(rng, piper(rng, alike=True)), pipelining=ZERO_BUBBLE),
    "nodes and links": lambda rng: replace(
        piper(rng, most_layers=4), cluster=cluster(rng, ONE_GROUP)
    ),
    "device groups": lambda rng: replace(
        piper(rng, most_layers=4), cluster=cluster(rng, TWO_GROUPS)
    ),
    "ZeRO-1": sharded,
    "detailed costs": detailed,
    "everything": everything,
}


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the problems of one objective."""

    infeasible: int = 0
    refused: int = 0
    stages: dict[int, int] = field(default_factory=dict)
    """How many best plans have so many stages."""
    differences: list[int] = field(default_factory=list)
    """Which problems the planners answer differently."""
    exact_seconds: float = 0.0
    exhaustive_seconds: float = 0.0


def compare(tally: Tally, number: int, given: PlanningProblem) -> None:
    """Ask both planners, and count."""
    start = time.perf_counter()
    try:
        found = exact(given)
    except InputError:
        tally.refused += 1
        return
    middle = time.perf_counter()
    wanted = exhaustive(given)
    tally.exact_seconds += middle - start
    tally.exhaustive_seconds += time.perf_counter() - middle
    if differs(given, found, wanted):
        tally.differences.append(number)
    if wanted.plan is None:
        tally.infeasible += 1
    else:
        depth = len(wanted.plan.stages)
        tally.stages[depth] = tally.stages.get(depth, 0) + 1


def differs(given: PlanningProblem, found: PlanningResult, wanted: PlanningResult) -> bool:
    """Whether the exact planner's answer is not the exhaustive one's, or not proven."""
    if not found.proven_optimal or (found.plan is None) != (wanted.plan is None):
        return True
    if found.evaluation is None or wanted.evaluation is None:
        return False
    times = found.evaluation.batch_seconds, wanted.evaluation.batch_seconds
    if not math.isclose(*times, rel_tol=EXACTLY):
        return True
    has_rule = given.cluster.is_flat and given.pipelining == STEADY and not given.shard_optimizer
    return has_rule and found.plan != wanted.plan


def main(count: int) -> None:
    """Print the table."""
    headings = ("objective", "problems", "infeasible", "refused", "stages of the best plan")
    table = Table(*headings, "exact", "exhaustive", "differences")
    for name, make in OBJECTIVES.items():
        tally = Tally()
        for number in range(count):
            compare(tally, number, make(random.Random(f"{name} {number}")))
        depths = ", ".join(f"{n} of {depth}" for depth, n in sorted(tally.stages.items()))
        table.add_row(
            name,
            str(count),
            str(tally.infeasible),
            str(tally.refused),
            depths,
            f"{tally.exact_seconds:.0f} s",
            f"{tally.exhaustive_seconds:.0f} s",
            ", ".join(map(str, tally.differences)) or "0",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
