"""The project's own graph file is read back, and told apart from Piper's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from diaulos.documents import Value
from diaulos.errors import InputError
from diaulos.models.files import format_graph, parse_graph, read_graph, write_graph
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.models.piper import PiperFile, write_piper
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import problems


def graph() -> LayerGraph:
    """A graph in which every field says something."""
    full = Option(
        name="checkpointed",
        tensor_parallel=2,
        seconds=3.0,
        forward_seconds=1.0,
        weight_backward_seconds=0.5,
        update_seconds=0.1,
        recompute=True,
        sequence_parallel=True,
        parameter_bytes=8.0,
        activation_bytes=5.0,
        fixed_memory=FixedMemory(parameters_bytes=8.0, versions_bytes=8.0, temporary_bytes=0.3),
        output_sync_bytes={-2: 4.0},
    )
    receiver = replace(
        full,
        forward_seconds=None,
        weight_backward_seconds=None,
        output_sync_bytes={},
        input_sync_bytes={1: 0.1},
    )
    layers = (Layer(id=1, name="a", options=(full,)), Layer(id=-2, options=(receiver,)))
    return LayerGraph(
        layers=layers,
        edges=(Edge(source=1, target=-2, bytes=7.0),),
        provenance={"device": "a laptop"},
    )


def test_nothing_is_lost(tmp_path: Path) -> None:
    """Names, kinds of memory, forward parts and provenance come back."""
    write_graph(tmp_path / "graph.json", graph())
    file = read_graph(tmp_path / "graph.json")
    assert file.graph == graph()
    assert file.piper is None


@given(problems())
def test_any_graph_is_read_back(problem: PlanningProblem) -> None:
    """Writing and reading any graph gives an equal one."""
    raw = json.loads(json.dumps(format_graph(problem.graph)))
    assert parse_graph(Value(raw, "$", "graph.json")) == problem.graph


def test_piper_s_files_are_recognised(tmp_path: Path) -> None:
    """A file without a format tag is Piper's, and brings its problem along."""
    vanilla = Option(name="vanilla", seconds=1.0, parameter_bytes=1.0, activation_bytes=1.0)
    piper = PiperFile(
        graph=LayerGraph(layers=(Layer(id=4, options=(vanilla,)),)),
        max_devices=3,
        max_memory_per_device_bytes=1.0,
        bandwidth_bytes_per_second=1.0,
        microbatches=5,
    )
    write_piper(tmp_path / "piper.json", piper)
    assert read_graph(tmp_path / "piper.json").piper == piper


@pytest.mark.parametrize(
    ("place", "wrong", "message"),
    [
        (("format",), "diaulos.layer_graph/2", "$.format is 'diaulos.layer_graph/2'"),
        (("layers", 0, "options", 0, "seconds"), -1, "$.layers[0].options[0].seconds is -1"),
        (
            ("layers", 0, "options", 0, "forward_seconds"),
            9.0,
            "$.layers[0].options[0]: forward_seconds is 9.0",
        ),
        (
            ("layers", 0, "options", 0, "fixed_memory"),
            {"cheese_bytes": 1},
            "$.layers[0].options[0].fixed_memory has the unknown key 'cheese_bytes'",
        ),
        (
            ("layers", 1, "options", 0, "input_sync_bytes"),
            {"x": 1},
            "$.layers[1].options[0].input_sync_bytes.x has the key 'x'",
        ),
        (("edges", 0, "target"), 4, "$: the edge 1 -> 4 names layer 4"),
        (("provenance", "device"), 3, "$.provenance.device is a number"),
    ],
)
def test_errors_name_the_place(place: tuple[str | int, ...], wrong: object, message: str) -> None:
    """What is wrong is told with its path in the file."""
    raw: Any = format_graph(graph())
    inner = raw
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    with pytest.raises(InputError) as caught:
        parse_graph(Value(raw, "$", "graph.json"))
    assert message in str(caught.value)
