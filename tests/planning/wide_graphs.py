"""Graphs with very many downsets: fans, random ones, and cells as of an architecture search."""

import random

from diaulos.models.graph import Edge, Layer, LayerGraph
from tests.planning.problems import option


def graph_of(
    times: list[float], edges: list[tuple[int, int]], bytes_each: float = 1.0
) -> LayerGraph:
    """Layers 0, 1, 2, ... with these seconds."""
    return LayerGraph(
        layers=tuple(
            Layer(id=i, options=(option(seconds=seconds, activations=seconds),))
            for i, seconds in enumerate(times)
        ),
        edges=tuple(Edge(source=a, target=b, bytes=bytes_each) for a, b in edges),
    )


def fan(leaves: int, *, alike: bool) -> LayerGraph:
    """One layer that feeds many, which feed none."""
    times = [1.0 if alike else 1.0 + leaf for leaf in range(leaves)]
    return graph_of([1.0, *times], [(0, leaf) for leaf in range(1, leaves + 1)])


def random_graph(layers: int, *, neighbours: int, seed: int) -> LayerGraph:
    """Each layer needs some of the dozen layers before it, so that dozens run in parallel."""
    rng = random.Random(seed)
    edges = [
        (source, target)
        for target in range(layers)
        for source in rng.sample(range(max(0, target - 12), target), min(target, neighbours))
    ]
    return graph_of([rng.uniform(0.1, 3.0) for _ in range(layers)], edges)


def cells(count: int, *, branches: int = 5, operators: int = 4) -> LayerGraph:
    """Cells as NASNet's: each needs the outputs of the two before it, and joins many branches."""
    rng = random.Random(count)
    times, edges = [1.0], []
    outputs = [0, 0]

    def add(*sources: int, seconds: float = 0.0) -> int:
        times.append(seconds)
        edges.extend((source, len(times) - 1) for source in dict.fromkeys(sources))
        return len(times) - 1

    for _ in range(count):
        inputs = [add(output, seconds=rng.uniform(0.5, 1.5)) for output in outputs]
        joined = []
        for _ in range(branches):
            ends = []
            for start in (rng.choice(inputs), rng.choice(inputs)):
                ends.append(start)
                for _ in range(operators):
                    ends[-1] = add(ends[-1], seconds=rng.uniform(0.1, 1.0))
            joined.append(add(*ends))
        outputs = [outputs[1], add(*joined)]
    return graph_of(times, edges)
