"""`diaulos plan` with the same layers priced for several microbatch sizes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from diaulos.models.files import write_graph
from tests.cli.test_plan import status_of
from tests.planning.problems import chain, option

CLUSTER = ("--devices", "2", "--memory", "100B", "--bandwidth", "1GB/s")
Capture = pytest.CaptureFixture[str]


def graph_file(folder: Path, name: str, size: str, *, seconds: float, activations: float) -> str:
    """Two layers that take so long for a microbatch of a size."""
    layer = [option(seconds=seconds, activations=activations)]
    graph = replace(chain(layer, layer), provenance={"microbatch_size": size} if size else {})
    write_graph(folder / name, graph)
    return str(folder / name)


@pytest.fixture
def sizes(tmp_path: Path) -> dict[int, str]:
    """Two samples take 1.5 times as long as one; four lack memory; three do not divide a batch."""
    return {
        1: graph_file(tmp_path, "1.json", "1", seconds=1.0, activations=10.0),
        2: graph_file(tmp_path, "2.json", "2", seconds=1.5, activations=20.0),
        3: graph_file(tmp_path, "3.json", "3", seconds=0.1, activations=20.0),
        4: graph_file(tmp_path, "4.json", "4", seconds=2.0, activations=200.0),
    }


@pytest.mark.parametrize("schedule", ["2bw", "1f1b"])
def test_the_fastest_size_is_taken(
    schedule: str, sizes: dict[int, str], tmp_path: Path, capsys: Capture
) -> None:
    """Of those that divide the batch and fit; the plan names the graph of its size."""
    plan = tmp_path / "plan.json"
    words = (sizes[4], "--also", sizes[1], "--also", sizes[3], "--also", sizes[2], *CLUSTER)
    words += ("--batch-size", "8", "--schedule", schedule, "-o", str(plan))
    assert status_of("plan", *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["microbatch_size"] == 2
    assert found["microbatches"] == 4
    assert json.loads(plan.read_text())["graph"]["path"] == "2.json"
    assert status_of("plan", *words) == 0
    assert "microbatches of 2; of 1: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("also", "words", "message"),
    [
        (1, (), "--batch-size"),
        (1, ("--batch-size", "8", "--microbatches", "4"), "--microbatches"),
        (4, ("--batch-size", "8"), "both for microbatches of 4"),
        (3, ("--batch-size", "7"), r"no microbatch size of [3, 4] divides"),
        (1, ("--batch-size", "8", "--schedule", "auto"), "--schedule auto"),
    ],
)
def test_what_is_refused(
    also: int, words: tuple[str, ...], message: str, sizes: dict[int, str], capsys: Capture
) -> None:
    """Exit 2, and what is missing or twice there is named."""
    copy = Path(sizes[4]).with_name("copy.json")
    copy.write_text(Path(sizes[4]).read_text())
    other = str(copy) if also == 4 else sizes[also]
    assert status_of("plan", sizes[4], "--also", other, *CLUSTER, *words) == 2
    assert message in capsys.readouterr().err


def test_a_graph_without_a_size(tmp_path: Path, sizes: dict[int, str], capsys: Capture) -> None:
    """Every graph must say for what size it was priced, where there are several."""
    other = graph_file(tmp_path, "other.json", "", seconds=1.0, activations=1.0)
    words = (sizes[1], "--also", other, *CLUSTER, "--batch-size", "8")
    assert status_of("plan", *words) == 2
    assert "does not say for what microbatch size" in capsys.readouterr().err
