"""`diaulos clusters`, and clusters in a few characters where a command takes one."""

import json
from pathlib import Path

import pytest

from diaulos.clusters.catalogue import device_names
from diaulos.models.files import write_graph
from tests.cli.test_plan import status_of
from tests.planning.problems import chain, option


def test_the_table_lists_every_device(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each device, its figures and its node in it."""
    assert status_of("clusters") == 0
    _, *rows, hint = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == list(device_names())
    a100 = next(row.split() for row in rows if row.startswith("A100-80GB "))
    assert {"80", "312", "DGX-A100", "232.5"} <= set(a100)
    assert "4x8xH100-80GB" in hint


def test_json_holds_figures_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    """Rates and sizes in base units, and where each comes from."""
    assert status_of("clusters", "a100-80gb", "L40S", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["devices"]
    assert (first["name"], second["name"]) == ("A100-80GB", "L40S")
    assert first["peak"]["bf16"] == 312e12
    assert first["node"]["inside"]["bandwidth"] == pytest.approx(232.5e9)
    assert "data sheet" in first["sources"]["peak"]


def test_sources_are_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each figure of the device and of its node."""
    assert status_of("clusters", "H100-80GB", "--sources") == 0
    name, *lines = capsys.readouterr().out.splitlines()
    assert name == "H100-80GB"
    assert any(line.startswith("  peak: NVIDIA H100 data sheet") for line in lines)
    assert any(line.startswith("  network of DGX-H100: ") for line in lines)


def test_an_unknown_device_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence names it and those alike."""
    assert status_of("clusters", "H100") == 2
    assert "there is no device 'H100'; did you mean H100-80GB" in capsys.readouterr().err


def test_plan_takes_a_cluster_in_a_few_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--cluster takes what `diaulos clusters` lists; what is wrong with it ends with 2."""
    path = tmp_path / "graph.json"
    write_graph(path, chain([option()], [option()]))
    arguments = ("plan", str(path), "--microbatches", "4", "--json", "--cluster")
    assert status_of(*arguments, "2x1xL40S") == 0
    assert json.loads(capsys.readouterr().out)["feasible"] is True
    assert status_of(*arguments, "2x9xL40S") == 2
    assert "L40S-server, which has 8" in capsys.readouterr().err
