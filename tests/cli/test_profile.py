"""`diaulos profile`, called as the command line calls it."""

import json
from pathlib import Path

import pytest

from diaulos.cli.profile import GPTFlags, profile
from diaulos.clusters.files import read_cluster
from diaulos.errors import InputError
from diaulos.models.files import read_graph

GPT = {"layers": 1, "width": 16, "heads": 2, "sequence_length": 8}
SIZES = {"model": GPTFlags(**GPT), "microbatch_size": 2}
FACTORY = "tests.models.factory_toys:branches"


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
        profile(**{**SIZES, "model": GPTFlags(**{**GPT, "heads": 3})})
    with pytest.raises(InputError, match="not a size"):
        profile(**SIZES, memory="plenty")


def test_what_is_not_given_is_named() -> None:
    """A model is a factory or all sizes of a GPT, and prices are of a microbatch."""
    with pytest.raises(InputError, match="--width, --heads, --sequence-length not given"):
        profile(model=GPTFlags(layers=1), microbatch_size=1)
    with pytest.raises(InputError, match="--microbatch-size not given"):
        profile(model=GPTFlags(**GPT))
    with pytest.raises(InputError, match="--layers given beside"):
        profile(FACTORY, model=GPTFlags(layers=1))


def test_a_module_of_the_users_own_becomes_a_graph(tmp_path: Path) -> None:
    """A module with branches is measured, and its graph has an edge to each reader."""
    profile(FACTORY, repetitions=1, output=tmp_path / "graph.json")
    graph = read_graph(tmp_path / "graph.json").graph
    names = [layer.name for layer in graph.layers]
    edges = {(names[edge.source], names[edge.target]): edge.bytes for edge in graph.edges}
    width = 4 * 3 * 4
    assert edges == {
        ("stem", "left_0"): 2 * width,
        ("left_0", "left_1"): width,
        ("stem", "right"): 2 * width,
        ("left_1", "join"): width,
        ("right", "join"): width,
        ("stem", "join"): 2 * width,
    }
    assert graph.provenance["model"] == FACTORY
    assert graph.provenance["microbatch_size"] == "4"


def test_a_hugging_face_model_becomes_a_graph(tmp_path: Path) -> None:
    """Its layers are called as those of graphs of its config; its samples have a length."""
    pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")
    from tests.models.huggingface.toys import CONFIGS  # noqa: PLC0415

    CONFIGS["llama"].save_pretrained(tmp_path / "llama")
    source, output = str(tmp_path / "llama"), tmp_path / "graph.json"
    length = GPTFlags(sequence_length=8)
    profile(source, model=length, microbatch_size=2, repetitions=1, output=output)
    names = [layer.name for layer in read_graph(output).graph.layers]

    assert names == ["embedding", "block_0", "block_1", "final_norm", "head", "loss"]
    with pytest.raises(InputError, match=r"nothing given .*for samples of --sequence-length"):
        profile(source, microbatch_size=2)
