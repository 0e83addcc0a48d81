"""`diaulos check` on plans edited by hand: each mistake is told, with what would do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diaulos.models.files import write_graph
from tests.cli.test_plan import status_of
from tests.planning.problems import chain, option

Capture = pytest.CaptureFixture[str]
Document = dict[str, Any]
Edit = Callable[[Document], object]
KIB = 1024.0


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    """Four layers on two stages of two devices: a plan that can be edited in many ways."""
    pair = [
        option(seconds=2.0, activations=2 * KIB, fixed=KIB),
        option("lean", seconds=3.0, activations=KIB, fixed=KIB, recompute=True),
    ]
    write_graph(tmp_path / "graph.json", chain(*[pair] * 4))
    arguments = ("--devices", "4", "--memory", "9KiB", "--bandwidth", "1GB/s")
    path = tmp_path / "plan.json"
    graph = str(tmp_path / "graph.json")
    assert status_of("plan", graph, *arguments, "--microbatches", "8", "-o", str(path)) == 0
    document = json.loads(path.read_text())
    document["stages"] = [stage_document([0, 1]), stage_document([2, 3])]
    path.write_text(json.dumps(document))
    return path


def stage_document(layers: list[int]) -> Document:
    """A stage of two replicas that recomputes."""
    names = {str(layer): "lean" for layer in layers}
    return {"layers": layers, "data_parallel": 2, "tensor_parallel": 1, "options": names}


def first(document: Document) -> Document:
    """The first stage."""
    stage: Document = document["stages"][0]
    return stage


def without_layer(document: Document) -> None:
    """Layer 1 is lost."""
    first(document).update(layers=[0], options={"0": "lean"})


@pytest.mark.parametrize(
    ("edit", "status", "message"),
    [
        (without_layer, 1, "layer 1 stands in no stage; put it into one of the stages 0 to 1"),
        (
            lambda d: d["stages"].reverse(),
            1,
            "layer 1 in stage 1 feeds layer 2 in the earlier stage 0",
        ),
        (
            lambda d: first(d).update(layers=[0, 1, 2], options=dict.fromkeys("012", "lean")),
            1,
            "layer 2 stands in 2 stages: [0, 1]",
        ),
        (
            lambda d: first(d).update(layers=[], options={}),
            2,
            "or remove the stage",
        ),
        (lambda d: d.update(stages=[]), 2, "$.stages is empty"),
        (lambda d: first(d).update(data_parallel=3), 1, "8 microbatches; 2 and 4 do"),
        (lambda d: first(d).update(data_parallel=0), 2, "data_parallel is 0; it must be at least"),
        (lambda d: first(d).update(data_parallel=2.5), 2, "it must be a whole number"),
        (lambda d: first(d).update(data_parallel=4), 1, "the stages take 6 devices"),
        (lambda d: first(d).update(tensor_parallel=2), 1, "all of its layers have 1"),
        (lambda d: d["cluster"].update(devices=2), 1, "the cluster has 2; use smaller degrees"),
        (lambda d: d["cluster"].update(memory_bytes=5 * KIB), 1, "1024 bytes (1 KiB) more than"),
        (lambda d: d.update(microbatches=7), 1, "does not divide the 7 microbatches; 1 and 7 do"),
        (lambda d: first(d)["options"].update({"1": "fat"}), 1, "it has 'plain', 'lean'"),
        (lambda d: first(d)["options"].pop("1"), 2, "give [1] an option"),
        (lambda d: first(d)["options"].update({"2": "lean"}), 2, "remove the option of [2]"),
        (lambda d: first(d).update(data_paralel=2), 2, "has the unknown key 'data_paralel'"),
        (lambda d: first(d).pop("tensor_parallel"), 2, "lacks the key 'tensor_parallel'"),
        (lambda d: d["graph"].update(path="other.json"), 2, "give its place with --graph"),
        (
            lambda d: first(d).update(first_device=0),
            2,
            "stage 1 does not state its first_device",
        ),
    ],
)
def test_each_mistake_is_told(
    planned: Path, edit: Edit, status: int, message: str, capsys: Capture
) -> None:
    """A rule of the plan ends with 1, a file that is no plan with 2; both name place and remedy."""
    document = json.loads(planned.read_text())
    edit(document)
    planned.write_text(json.dumps(document))
    assert status_of("check", str(planned)) == status
    told = capsys.readouterr().err
    assert message in told
    assert str(planned) in told


def test_one_rule_or_several_are_counted(planned: Path, capsys: Capture) -> None:
    """All broken rules are told at once."""
    document = json.loads(planned.read_text())
    without_layer(document)
    planned.write_text(json.dumps(document))
    assert status_of("check", str(planned)) == 1
    assert "the plan breaks a rule:\n" in capsys.readouterr().err
    first(document)["data_parallel"] = 3
    planned.write_text(json.dumps(document))
    assert status_of("check", str(planned)) == 1
    assert "the plan breaks 4 rules:\n" in capsys.readouterr().err


def test_a_sound_edit_is_priced_anew(planned: Path, capsys: Capture) -> None:
    """A plan may be edited soundly: it is priced from the definition, and the old figure told."""
    assert status_of("check", str(planned)) == 0
    captured = capsys.readouterr()
    assert "valid: 24 s per batch of 8 microbatches" in captured.out
    assert "note: the file states 2 s per sample" in captured.err
    assert status_of("check", str(planned), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["time_per_sample_seconds"], found["states_its_time"]) == (3.0, False)


def test_text_that_is_no_json(planned: Path, capsys: Capture) -> None:
    """A comma too many is told with its line and column."""
    planned.write_text(planned.read_text().replace('"stages": [', '"stages": [,', 1))
    assert status_of("check", str(planned)) == 2
    assert "not JSON: Expecting value at line" in capsys.readouterr().err
