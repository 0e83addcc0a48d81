"""How often choosing plans by simulation finds the best of all plans, on small random problems.

Usage: python benchmarks/judged.py [INSTANCES] [SEED]

The oracle simulates every plan: all ways to cut the graph, all degrees, and all options that fit
and that no other ones beat in every cost. It shares no search, bound or choice of options with what
it judges.
"""

import itertools
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from rich.console import Console
from rich.table import Table

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.planning.evaluation.evaluate import fits, price_stage
from diaulos.planning.evaluation.pipelining import GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, Pipelining
from diaulos.planning.evaluation.places import stage_place
from diaulos.planning.plan import Stage
from diaulos.planning.problem import PlanningProblem
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.judging.judged import fastest_by_simulation
from diaulos.schedules.plans import handed_on_bytes, plan_simulator, stage_costs
from diaulos.schedules.shape import PipelineShape

SCHEDULES = (GPIPE, ONE_F_ONE_B, ZERO_BUBBLE)
ROUNDING = 1e-9
ALLOWED = 0.02


def random_problem(random: Random, pipelining: Pipelining) -> PlanningProblem:
    """A graph of two to five layers on two to six devices, where memory often binds."""
    size = random.choice((2, 3, 4, 4, 5))
    density = random.choice((0.4, 0.7, 1.0))
    is_chain = random.random() < 0.3
    edges = tuple(
        Edge(source=a, target=b, bytes=random.uniform(0, 4))
        for a, b in itertools.combinations(range(size), 2)
        if (b == a + 1 if is_chain else random.random() < density)
    )
    layers = tuple(Layer(id=i, options=tuple(_options(random))) for i in range(size))
    devices = random.choice((2, 3, 4, 4, 5, 6)) if size < 5 else random.choice((2, 3, 4))
    cluster = Cluster.flat(
        devices=devices,
        memory_bytes=random.choice((8.0, 12.0, 20.0, 1000.0)),
        bandwidth_bytes_per_second=random.choice((0.5, 2.0, 10.0)),
        latency_seconds=random.choice((0.0, 0.0, 0.1)),
    )
    return PlanningProblem(
        graph=LayerGraph(layers=layers, edges=edges),
        cluster=cluster,
        microbatches=random.choice((2, 4, 6, 8, 12, 16)),
        data_parallel=random.random() < 0.8,
        pipelining=pipelining,
    )


def _options(random: Random) -> Iterator[Option]:
    """One to three at each tensor-parallel degree; the later ones take longer and hold less."""
    seconds, parameters = random.uniform(0.5, 8), random.choice((0.0, random.uniform(0, 6)))
    activations, fixed = random.uniform(0, 2), random.uniform(0, 4)
    for degree in random.choice(((1,), (1, 2))):
        split = degree * random.uniform(0.7, 1)
        for number in range(random.choice((1, 2, 2, 3))):
            taken = seconds / split * (1 + number * random.uniform(0, 0.5))
            yield Option(
                name=f"option {number}",
                tensor_parallel=degree,
                seconds=taken,
                forward_seconds=random.choice((None, None, taken * random.uniform(0.2, 0.4))),
                weight_backward_seconds=random.choice((None, None, taken * random.uniform(0, 0.4))),
                update_seconds=random.choice((0.0, random.uniform(0, 1))),
                recompute=number == 1,
                parameter_bytes=parameters,
                activation_bytes=activations / degree / (1 + number),
                fixed_memory=FixedMemory(unspecified_bytes=fixed / degree),
            )


@dataclass(slots=True)
class Oracle:
    """All plans of a problem on one node, simulated."""

    problem: PlanningProblem
    costs: dict[tuple[object, ...], list[StageCosts]] = field(default_factory=dict)

    def best_seconds(self) -> float:
        """Of a batch; infinite where no plan fits."""
        return min(map(self._seconds, self._cuts_and_degrees()), default=math.inf)

    def _cuts_and_degrees(self) -> Iterator[tuple[tuple[frozenset[int], int, int], ...]]:
        """All stages with their data- and tensor-parallel degrees, from the input end."""

        def grown(left: frozenset[int], replicas: int, devices: int) -> Iterator[tuple]:
            if not left:
                yield ()
                return
            for layers in self._beginnings(left):
                for d, t in itertools.product(
                    self.problem.data_degrees, self.problem.tensor_degrees
                ):
                    if d <= replicas and d * t <= devices:
                        rest = grown(left - layers, replicas - d, devices - d * t)
                        yield from (((layers, d, t), *stages) for stages in rest)

        everything = frozenset(layer.id for layer in self.problem.graph.layers)
        most = min(self.problem.microbatches, self.problem.cluster.devices)
        yield from grown(everything, most, self.problem.cluster.devices)

    def _beginnings(self, left: frozenset[int]) -> Iterator[frozenset[int]]:
        """Sets of the layers left that need none of the others."""
        for count in range(1, len(left) + 1):
            for some in map(frozenset, itertools.combinations(sorted(left), count)):
                if not any(
                    e.target in some and e.source in left - some for e in self.problem.graph.edges
                ):
                    yield some

    def _seconds(self, stages: tuple[tuple[frozenset[int], int, int], ...]) -> float:
        """With the best options."""
        problem = self.problem
        degrees = [d for _, d, _ in stages]
        later = [frozenset().union(*(s[0] for s in stages[i + 1 :])) for i in range(len(stages))]
        choices = [
            self._choices(*stage, total=total, later=behind)
            for stage, total, behind in zip(
                stages, problem.pipelining.totals(degrees), later, strict=True
            )
        ]
        if not all(choices):
            return math.inf
        shape = PipelineShape(replicas=tuple(degrees), microbatches=problem.microbatches)
        simulator = plan_simulator(problem.pipelining.name, shape, 1)
        link = Link.of(problem.cluster.groups[0].link)
        return min(simulator.makespan_seconds(costs, link) for costs in itertools.product(*choices))

    def _choices(
        self, layers: frozenset[int], d: int, t: int, *, total: int, later: frozenset[int]
    ) -> list[StageCosts]:
        """Costs of all options that fit, without those that others beat in everything."""
        problem = self.problem
        in_flight = problem.pipelining.in_flight(total, d, problem.microbatches)
        key = (layers, d, t, in_flight, later)
        if key not in self.costs:
            ids = tuple(i for i in problem.graph.topological_order if i in layers)
            place = stage_place(problem.cluster, range(d * t), before=None, behind=None)
            found = []
            for options in itertools.product(
                *(problem.options(problem.graph.layer(i), t) for i in ids)
            ):
                stage = Stage(
                    layers=ids,
                    data_parallel=d,
                    tensor_parallel=t,
                    options={i: o.name for i, o in zip(ids, options, strict=True)},
                )
                price = price_stage(
                    problem.graph,
                    stage,
                    place,
                    total=total,
                    microbatches=problem.microbatches,
                    costs=problem.costs,
                    pipelining=problem.pipelining,
                )
                if fits(price.memory_bytes, price.memory_limit_bytes):
                    sent = handed_on_bytes(problem.graph, later)
                    found.append(stage_costs(problem.graph, stage, sent, place))
            self.costs[key] = _unbeaten(found)
        return self.costs[key]


def _unbeaten(found: list[StageCosts]) -> list[StageCosts]:
    def figures(costs: StageCosts) -> tuple[float, ...]:
        return (
            costs.forward_seconds,
            costs.input_seconds,
            costs.backward_seconds,
            costs.weight_seconds,
            costs.update_seconds,
        )

    distinct = list({figures(costs): costs for costs in found}.items())
    return [
        costs
        for mine, costs in distinct
        if not any(
            theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True))
            for theirs, _ in distinct
        )
    ]


def main(instances: int, seed: int) -> None:
    """Print the table."""
    table = Table("schedule", "instances", "infeasible", "best found", "worst", "search", "oracle")
    for pipelining in SCHEDULES:
        random = Random(seed)
        ratios, infeasible, searched, judged = [], 0, 0.0, 0.0
        while len(ratios) < instances:
            problem = random_problem(random, pipelining)
            start = time.perf_counter()
            found = fastest_by_simulation(problem).best
            middle = time.perf_counter()
            best = Oracle(problem).best_seconds()
            searched += middle - start
            judged += time.perf_counter() - middle
            if found is None or best == math.inf:
                assert found is None, "the oracle finds no plan, the search does"
                assert best == math.inf, "the search finds no plan, the oracle does"
                infeasible += 1
                continue
            ratios.append(found.simulated_seconds / best)
        table.add_row(
            pipelining.name,
            str(instances),
            str(infeasible),
            f"{sum(ratio <= 1 + ROUNDING for ratio in ratios) / instances:.1%}",
            f"{max(ratios) - 1:+.2%}",
            f"{searched / (instances + infeasible) * 1e3:.1f} ms",
            f"{judged / (instances + infeasible) * 1e3:.1f} ms",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(*arguments, *(500, 1)[len(arguments) :])
