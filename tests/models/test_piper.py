"""Piper's JSON is read and written without loss, and wrong files are told where they are wrong."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.documents import Value
from diaulos.errors import InputError
from diaulos.models.piper import PiperFile, format_piper, parse_piper, read_piper, write_piper
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import problems
from tests.planning.reference import FOLDER, needs_reference


def tmpc(name: str = "vanilla", **changes: object) -> dict[str, object]:
    return {
        "id": name,
        "timePerSample": 1.5,
        "parameterSize": 4,
        "memoryUsageA": 2.0,
        "memoryUsageB": 3.0,
        "syncTimeFw": {},
        "syncTimeBw": {},
        **changes,
    }


def document() -> dict[str, Any]:
    """Two layers and an edge, as Piper writes them."""
    return {
        "maxDevices": 4,
        "maxMemoryPerDevice": 1e10,
        "bandwidth": 25e9,
        "mbsInBatch": 8,
        "nodes": [
            {
                "id": 7,
                "name": "first",
                "TMPCs": {
                    "1": [
                        tmpc(syncTimeBw={"3": 5.0}),
                        tmpc("activation recomp", syncTimeBw={"3": 0}),
                    ],
                    "2": [tmpc(syncTimeBw={"3": 1.0})],
                },
            },
            {"id": 3, "TMPCs": {"1": [tmpc(syncTimeFw={"7": 6.0})]}},
        ],
        "edges": [{"sourceId": 7, "destId": 3, "communicationCost": 9.0}],
    }


def parse(raw: object) -> PiperFile:
    return parse_piper(Value(raw, "$", "graph.json"))


def test_a_file_is_understood() -> None:
    """Each figure of the file stands where the graph keeps it."""
    file = parse(document())
    assert (file.max_devices, file.microbatches) == (4, 8)
    assert (file.max_memory_per_device_bytes, file.bandwidth_bytes_per_second) == (1e10, 25e9)
    assert file.graph.topological_order == (7, 3)
    plain, again, half = file.graph.layer(7).options
    assert (plain.tensor_parallel, again.tensor_parallel, half.tensor_parallel) == (1, 1, 2)
    assert (plain.recompute, again.recompute) == (False, True)
    assert (plain.seconds, plain.parameter_bytes) == (1.5, 4.0)
    assert (plain.activation_bytes, plain.fixed_bytes) == (2.0, 3.0)
    assert plain.output_sync_bytes == {3: 5.0}
    assert file.graph.layer(3).options[0].input_sync_bytes == {7: 6.0}
    assert file.graph.edges[0].bytes == 9.0


def test_both_names_for_the_microbatches_are_read() -> None:
    """The code's `mbsInBatch` and the README's `maxBatchSize` mean the same, and are kept."""
    raw = document()
    raw["maxBatchSize"] = raw.pop("mbsInBatch")
    file = parse(raw)
    assert file.microbatches == 8
    assert "maxBatchSize" in format_piper(file)
    for wrong in ({**raw, "mbsInBatch": 8}, {k: v for k, v in raw.items() if k != "maxBatchSize"}):
        with pytest.raises(InputError, match="of the keys mbsInBatch and maxBatchSize"):
            parse(wrong)


@given(problems(), st.integers(1, 10_000), st.sampled_from(("mbsInBatch", "maxBatchSize")))
def test_any_graph_is_read_back(problem: PlanningProblem, microbatches: int, key: str) -> None:
    """Writing a graph and reading it gives an equal one, through the text of the file too."""
    named = {"option 0": "vanilla", "option 1": "activation recomp", "option 2": "other"}
    file = PiperFile(
        graph=problem.graph,
        max_devices=problem.cluster.devices,
        max_memory_per_device_bytes=problem.cluster.largest_memory_bytes,
        bandwidth_bytes_per_second=problem.cluster.slowest_link.bandwidth_bytes_per_second,
        microbatches=microbatches,
        microbatches_key=key,
    )
    text = json.dumps(format_piper(file))
    for option, name in named.items():
        text = text.replace(option, name)
    first = parse(json.loads(text))
    assert parse(format_piper(first)) == first
    assert json.loads(text) == format_piper(first)


def test_a_file_is_written(tmp_path: Path) -> None:
    """Through the disk nothing is lost."""
    file = parse(document())
    write_piper(tmp_path / "x.json", file)
    assert read_piper(tmp_path / "x.json") == file


@needs_reference
@pytest.mark.parametrize("name", ["bert32a100.json", "bert96.json", "resnet.json", "gnmt.json"])
def test_published_files_are_kept(name: str) -> None:
    """The inputs of the paper come out as they went in, value by value."""
    raw = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    assert format_piper(read_piper(FOLDER / name)) == raw


@pytest.mark.parametrize(
    ("place", "wrong", "message"),
    [
        (("maxDevices",), 0, "$.maxDevices is 0"),
        (("bandwidth",), 0.0, "$.bandwidth is 0.0; it must be finite and above 0"),
        (("nodes", 1, "id"), "3", "$.nodes[1].id is a string"),
        (("nodes", 1, "id"), 7, "two layers have the id 7"),
        (
            ("nodes", 0, "TMPCs", "2", 0, "timePerSample"),
            -1.0,
            "$.nodes[0].TMPCs.2[0].timePerSample is -1.0",
        ),
        (("nodes", 0, "TMPCs"), {"two": []}, "$.nodes[0].TMPCs.two has the key 'two'"),
        (("nodes", 0, "TMPCs"), {}, "$.nodes[0]: layer 7 has no options"),
        (
            ("nodes", 1, "TMPCs", "1", 0, "syncTimeFw"),
            {"x": 1},
            "$.nodes[1].TMPCs.1[0].syncTimeFw.x has the key 'x'",
        ),
        (
            ("nodes", 1, "TMPCs", "1", 0, "syncTimeFw"),
            {"7": -1},
            "$.nodes[1].TMPCs.1[0].syncTimeFw.7 is -1",
        ),
        (
            ("nodes", 1, "TMPCs", "1", 0, "syncTimeFw"),
            {},
            "$.nodes[1] lacks syncTimeFw of [7] in option 'vanilla'",
        ),
        (("nodes", 0, "TMPCs", "1", 1, "id"), "vanilla", "two options 'vanilla'"),
        (("edges", 0, "destId"), 5, "the edge 7 -> 5 names layer 5"),
        (("edges", 0, "communicationCost"), None, "$.edges[0].communicationCost is null"),
    ],
)
def test_errors_name_the_place(place: tuple[str | int, ...], wrong: object, message: str) -> None:
    """Every wrong value is told with the file and its path in it."""
    raw = copy.deepcopy(document())
    inner: Any = raw
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    with pytest.raises(InputError) as caught:
        parse(raw)
    assert message in str(caught.value)
    assert str(caught.value).startswith("graph.json: ")


def test_cycles_are_refused() -> None:
    """A graph that feeds itself cannot be cut into stages."""
    raw = document()
    raw["edges"].append({"sourceId": 3, "destId": 7, "communicationCost": 0})
    for node, forward, backward in ((0, {"3": 0}, {"3": 0}), (1, {"7": 0}, {"7": 0})):
        for options in raw["nodes"][node]["TMPCs"].values():
            for entry in options:
                entry.update(syncTimeFw=forward, syncTimeBw=backward)
    with pytest.raises(InputError, match=r"the edges make a cycle through layers \[3, 7\]"):
        parse(raw)
