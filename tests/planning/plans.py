"""A small graph and its plans, short to write down."""

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import Edge, Layer, LayerGraph
from diaulos.planning.plan import Plan, Stage
from tests.planning.problems import option

CLUSTER = Cluster.flat(devices=8, memory_bytes=100.0, bandwidth_bytes_per_second=10.0)


def graph() -> LayerGraph:
    """0 -> 1 -> 2 and 0 -> 2, at degrees 1 and 2."""
    layers = (
        Layer(
            id=0, options=(option(seconds=4.0, parameters=8.0, activations=3.0, sends={2: 1.0}),)
        ),
        Layer(
            id=1,
            options=(
                option(seconds=2.0, activations=5.0, fixed=7.0),
                option("lean", seconds=3.0, activations=1.0, fixed=9.0, recompute=True),
            ),
        ),
        Layer(
            id=2,
            name="head",
            options=(
                option(seconds=6.0, receives={0: 2.0, 1: 4.0}),
                option(tensor_parallel=2, seconds=3.5, parameters=16.0),
            ),
        ),
    )
    edges = (
        Edge(source=0, target=1, bytes=10.0),
        Edge(source=1, target=2, bytes=20.0),
        Edge(source=0, target=2, bytes=30.0),
    )
    return LayerGraph(layers=layers, edges=edges)


def stage(*layers: int, d: int = 1, t: int = 1, **names: str) -> Stage:
    options = {layer: names.get(f"of_{layer}", "plain") for layer in layers}
    return Stage(layers=layers, data_parallel=d, tensor_parallel=t, options=options)


def plan(*stages: Stage, microbatches: int = 12) -> Plan:
    return Plan(stages=stages, microbatches=microbatches)
