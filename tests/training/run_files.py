"""What a run file names: plans and texts in a folder."""

from pathlib import Path

from diaulos.clusters.cluster import Cluster
from diaulos.models.data import write_tokens
from diaulos.models.files import write_graph
from diaulos.models.layers import LayeredModel
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.files import write_plan
from tests.training.toy import graph_of, plan_of


def write_inputs(folder: Path, model: LayeredModel, *, shards: tuple[int, ...]) -> None:
    """Write a plan for a model, of a stage for each of these numbers of shards, and a text."""
    cluster = Cluster.flat(devices=2, memory_bytes=1e9, bandwidth_bytes_per_second=1e9)
    graph = graph_of(model)
    plan = plan_of(len(graph.layers), (1,) * len(shards), 2, shards=shards)
    write_graph(folder / "graph.json", graph)
    write_plan(
        folder / "plan.json",
        plan,
        evaluate(graph, plan, cluster),
        graph_path=folder / "graph.json",
        cluster=cluster,
        made_by={},
    )
    write_tokens("The quick brown fox jumps over the lazy dog. " * 20, folder / "text.bin")
