"""`diaulos profile`, called as the command line calls it."""

import json
from pathlib import Path

import pytest

from diaulos.cli.profile import profile
from diaulos.clusters.files import read_cluster
from diaulos.errors import InputError
from diaulos.models.files import read_graph

SIZES = {"layers": 1, "width": 16, "heads": 2, "sequence_length": 8, "microbatch_size": 2}


def test_it_prints_a_table_and_writes_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table names every layer; graph and cluster are written in forms that can be read."""
    graph_path, cluster_path = tmp_path / "graph.json", tmp_path / "cluster.toml"
    profile(
        **SIZES, repetitions=1, output=graph_path, cluster=cluster_path, memory="1GiB", processes=2
    )
    printed = capsys.readouterr()
    for text in ("embedding", "block_0", "head", "plain", "recompute", "in flight"):
        assert text in printed.out
    assert "wrote" in printed.err
    block = read_graph(graph_path).graph.layers[1].options[0]
    memory = block.fixed_memory
    assert memory.parameters_bytes == block.parameter_bytes == memory.gradients_bytes
    assert memory.versions_bytes == memory.optimizer_bytes == 2 * block.parameter_bytes
    cluster = read_cluster(cluster_path)
    assert (cluster.devices, cluster.largest_memory_bytes) == (2, 2.0**30)


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, stdout holds the graph's document and nothing else."""
    profile(**SIZES, repetitions=1, optimizer="sgd", as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "diaulos.layer_graph/1"
    assert document["provenance"]["optimizer"] == "SGD"
    assert document["provenance"]["optimizer_bytes_per_parameter_byte"] == "1"


def test_a_wrong_size_is_refused_before_measuring() -> None:
    """Heads that do not divide the width, and a memory that is no size."""
    with pytest.raises(InputError, match="heads"):
        profile(**{**SIZES, "heads": 3})
    with pytest.raises(InputError, match="not a size"):
        profile(**SIZES, memory="plenty")
