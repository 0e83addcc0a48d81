"""`diaulos compare`: the table, the JSON, and the exit status where nobody has a plan."""

import json
from pathlib import Path

import pytest

from diaulos.models.files import write_graph
from tests.cli.test_plan import status_of
from tests.planning.problems import chain, option

FLAGS = ("--bandwidth", "1GB/s", "--microbatches", "2", "--devices", "2")


@pytest.fixture
def graph(tmp_path: Path) -> str:
    """A file with three layers of 1 KiB, 2 s alone and 1 s on two devices."""
    options = [option(seconds=2.0, fixed=1024.0), option("split", tensor_parallel=2)]
    write_graph(tmp_path / "graph.json", chain(*[options] * 3))
    return str(tmp_path / "graph.json")


def test_the_table_names_all(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each contender, then the reasons of those without a plan."""
    assert status_of("compare", graph, *FLAGS, "--memory", "2KiB") == 0
    printed = capsys.readouterr().out.splitlines()

    assert [line.split("  ")[0] for line in printed[1:8]] == [
        "exact",
        "no-data-parallel",
        "no-tensor-parallel",
        "no-recompute",
        "equal",
        "equal, no-tensor-parallel",
        "pipedream",
    ]
    assert "1.000" in printed[1]
    assert all("GiB" not in line for line in printed[1:8])


def test_json_has_figures_or_reasons(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each entry has seconds, ratio, devices, stages and memory, or says why it has none."""
    assert status_of("compare", graph, *FLAGS, "--memory", "1KiB", "--json") == 0
    found = json.loads(capsys.readouterr().out)["planners"]

    for entry in found:
        if entry["feasible"]:
            assert entry["batch_seconds"] == 2 * entry["time_per_sample_seconds"]
            assert entry["ratio"] >= 1
            assert entry["fullest_device_bytes"] <= 1024
        else:
            assert entry["reason"]
    feasible = {entry["planner"] for entry in found if entry["feasible"]}
    assert "exact" in feasible
    assert "no-tensor-parallel" not in feasible


def test_no_plan_at_all_ends_with_1(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing fits the table is printed, and the exit status says so."""
    arguments = (*FLAGS, "--memory", "1B", "--no-tensor-parallel")
    assert status_of("compare", graph, *arguments) == 1
    captured = capsys.readouterr()

    assert "no plan for exact; no-data-parallel" in captured.out
    assert "no planner finds a plan" in captured.err
