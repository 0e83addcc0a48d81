"""How long it takes to generate, check and simulate a large schedule.

    python benchmarks/schedules.py

64 ranks of 4 stages, 1,024 microbatches, interleaved: 1.6 million actions. And a small one, as
planning asks for many times: 4 stages, 16 microbatches.
"""

import time
from collections.abc import Callable

from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

COST = StageCosts(forward_seconds=1.0, backward_seconds=2.0)


def seconds(action: Callable[[], object], times: int = 1) -> float:
    """Of one call, the mean of several."""
    start = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - start) / times


def measure(name: str, shape: PipelineShape, times: int) -> None:
    """One line."""
    costs = [COST] * shape.stages
    schedule = generate(name, shape, 1)
    simulator = Simulator(schedule)
    actions = sum(map(len, schedule.actions))
    parts = {
        "generate": seconds(lambda: generate(name, shape, 1), times),
        "check": seconds(lambda: check(generate(name, shape, 1)), times),
        "make ready": seconds(lambda: Simulator(schedule), times),
        "makespan": seconds(lambda: simulator.makespan_seconds(costs, Link()), times),
        "timeline": seconds(lambda: simulator.timeline(costs, Link()), times),
    }
    parts["check"] -= parts["generate"]
    told = ", ".join(f"{part} {1e3 * took:.2f} ms" for part, took in parts.items())
    print(f"{name}, {actions} actions: {told}")


measure("interleaved", PipelineShape(replicas=(1,) * 64, microbatches=1024, chunks=4), 1)
measure("1f1b", PipelineShape(replicas=(1,) * 4, microbatches=16), 100)
measure("zb-h1", PipelineShape(replicas=(1,) * 4, microbatches=16), 100)
measure("1f1b", PipelineShape(replicas=(1, 2, 1, 4), microbatches=16), 20)
