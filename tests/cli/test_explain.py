"""`diaulos explain`: stages, a gap that adds up, and what would change, as text and as JSON."""

import json
from pathlib import Path

import pytest

from diaulos.models.files import write_graph
from tests.cli.test_plan import status_of
from tests.planning.problems import chain, option

Capture = pytest.CaptureFixture[str]
KIB = 1024.0


@pytest.fixture
def planned(tmp_path: Path) -> str:
    """A plan of three layers on two devices with too little memory for one fast option."""
    pair = [
        option(seconds=2.0, activations=4 * KIB),
        option("lean", seconds=3.0, activations=KIB, recompute=True),
    ]
    write_graph(tmp_path / "graph.json", chain(*[pair] * 3, bytes_between=1e6))
    arguments = ("--devices", "2", "--memory", "8KiB", "--bandwidth", "1GB/s")
    path = str(tmp_path / "plan.json")
    graph = str(tmp_path / "graph.json")
    assert status_of("plan", graph, *arguments, "--microbatches", "4", "-o", path) == 0
    return path


def test_the_gap_adds_up(planned: str, capsys: Capture) -> None:
    """The parts of the JSON sum up to the time, and the stages say what binds them."""
    capsys.readouterr()
    assert status_of("explain", planned, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    seconds = found["seconds_of_a_microbatch"]
    total = seconds.pop("total_seconds")

    assert sum(seconds.values()) == pytest.approx(total)
    assert total == pytest.approx(found["time_per_sample_seconds"])
    assert "memory" in {stage["bound_by"] for stage in found["stages"]}
    assert set(found["what_if"]) == {"new_plan", "more_devices", "more_memory", "proven"}


def test_the_text(planned: str, capsys: Capture) -> None:
    """Stages, the gap and sentences on more devices and memory."""
    capsys.readouterr()
    assert status_of("explain", planned, "--more-memory", "1KiB") == 0
    text = capsys.readouterr().out
    for expected in (
        "memory, which bars",
        "least work, in perfect balance (the bound)",
        "recomputation",
        "1 more device: ",
        "1 KiB more memory on each device: ",
    ):
        assert expected in text


def test_a_plan_edited_by_hand_has_a_better_one(planned: str, capsys: Capture) -> None:
    """Options made slower by hand: planning anew is said to be faster, by how much."""
    document = json.loads(Path(planned).read_text())
    for stage in document["stages"]:
        stage["options"] = dict.fromkeys(stage["options"], "lean")
    Path(planned).write_text(json.dumps(document))
    capsys.readouterr()
    assert status_of("explain", planned) == 0
    assert "planned anew on the same devices: " in capsys.readouterr().out


def test_an_invalid_plan_is_not_explained(planned: str, capsys: Capture) -> None:
    """What breaks a rule is told instead, with exit status 1."""
    document = json.loads(Path(planned).read_text())
    document["stages"][0]["data_parallel"] = 3
    Path(planned).write_text(json.dumps(document))
    assert status_of("explain", planned) == 1
    assert "does not divide" in capsys.readouterr().err
