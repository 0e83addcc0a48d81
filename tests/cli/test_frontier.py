"""`diaulos frontier`: tables, JSON, the picture, and what makes no frontier."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from diaulos.models.files import write_graph
from tests.cli.test_plan import status_of
from tests.planning.problems import chain, option

FLAGS = ("--bandwidth", "1GB/s", "--microbatches", "4")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """A file with two layers of 2 s and 1 KiB."""
    write_graph(tmp_path / "two.json", chain(*[[option(seconds=2.0, fixed=1024.0)]] * 2))
    return str(tmp_path / "two.json")


def test_over_devices(graph: str, capsys: Capture) -> None:
    """One row for each number of devices, with the plan's figures."""
    arguments = ("--devices", "1..4", "--memory", "2KiB")
    assert status_of("frontier", graph, *FLAGS, *arguments) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert [row[0] for row in rows] == ["devices", "1", "2", "4"]
    assert rows[3] == ["4", "4", "s", "1", "s", "4", "1", "2", "KiB"]


def test_over_memory_as_json(graph: str, capsys: Capture) -> None:
    """Points in ascending order; where there is no plan, the reason."""
    arguments = ("--devices", "4", "--memory", "512B..2KiB", "--json")
    assert status_of("frontier", graph, *FLAGS, *arguments) == 0
    document = json.loads(capsys.readouterr().out)
    points = document["series"]["exact"]

    assert (document["over"], document["microbatches"]) == ("memory", 4)
    assert [point["memory_bytes"] for point in points] == [512, 1024, 2048]
    assert [point.get("batch_seconds") for point in points] == [None, 4.0, 4.0]
    assert "needs at least 1 KiB" in points[0]["reason"]


def test_ablations_and_picture(graph: str, tmp_path: Path, capsys: Capture) -> None:
    """With --ablations there are four series, and each has its line and name in the picture."""
    picture = tmp_path / "frontier.svg"
    arguments = ("--devices", "1..8:1", "--memory", "2KiB", "--ablations", "--svg", str(picture))
    assert status_of("frontier", graph, *FLAGS, *arguments) == 0
    heading = capsys.readouterr().out.splitlines()[0]
    texts = {element.text for element in ET.fromstring(picture.read_text()).iter()}

    for name in ("exact", "no-data-parallel", "no-tensor-parallel", "no-recompute"):
        assert name in heading
        assert name in texts
    assert "two: batches of 4 microbatches" in texts


@pytest.mark.parametrize("sizes", [("8", "8B"), ("1..8", "8B..16B")])
def test_one_range_is_needed(graph: str, sizes: tuple[str, str], capsys: Capture) -> None:
    """Without a range, or with two, there is no frontier."""
    devices, memory = sizes
    assert status_of("frontier", graph, *FLAGS, "--devices", devices, "--memory", memory) == 2
    assert "runs over one of them" in capsys.readouterr().err


def test_no_plan_anywhere(graph: str, capsys: Capture) -> None:
    """Where nothing fits on the whole range the exit status says so."""
    assert status_of("frontier", graph, *FLAGS, "--devices", "1..4", "--memory", "1B") == 1
    captured = capsys.readouterr()
    assert captured.out.count("no plan") == 3
    assert "no plan anywhere" in captured.err
