"""`diaulos plan`: the JSON that others rely on, the table, and the exit statuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from diaulos.cli.main import main
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.files import write_cluster
from diaulos.models.files import write_graph
from diaulos.models.piper import PiperFile, write_piper
from diaulos.planning.files import read_plan
from tests.planning.problems import chain, option

Capture = pytest.CaptureFixture[str]
GIB = 2.0**30


@pytest.fixture
def piper(tmp_path: Path) -> str:
    """A Piper file with four layers, two options each, for two devices."""
    options = [
        option("vanilla", seconds=2.0, activations=2 * GIB),
        option("activation recomp", seconds=3.0, activations=GIB, recompute=True),
    ]
    layers = chain(*[options] * 4).layers
    path = tmp_path / "graph.json"
    # No edges: Piper's files state synchronised bytes for every edge.
    graph = type(chain([option()]))(layers=layers)
    write_piper(
        path,
        PiperFile(
            graph=graph,
            max_devices=2,
            max_memory_per_device_bytes=100 * GIB,
            bandwidth_bytes_per_second=1e9,
            microbatches=4,
        ),
    )
    return str(path)


def status_of(*arguments: str) -> int:
    """The exit status of a command."""
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def document_of(capsys: Capture, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The one JSON object that a command prints."""
    assert status_of(*arguments) == status
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_json_has_all_keys(piper: str, capsys: Capture) -> None:
    """Exactly one JSON object, with stages from the input end and ids as in the file."""
    found = document_of(capsys, "plan", piper, "--json")
    search_seconds = found.pop("search_seconds")
    assert search_seconds > 0
    stage = {
        "data_parallel": 2,
        "tensor_parallel": 1,
        "layers": [0, 1, 2, 3],
        "options": dict.fromkeys("0123", "vanilla"),
        "in_flight": 1,
        "memory_bytes": 8 * GIB,
        "time_per_sample_seconds": 4.0,
    }
    assert found == {
        "feasible": True,
        "planner": "exact",
        "microbatches": 4,
        "proven_optimal": True,
        "time_per_sample_seconds": 4.0,
        "batch_seconds": 16.0,
        "lower_bound_seconds": 16.0,
        "remark": None,
        "devices_used": 2,
        "stages": [stage],
    }


def test_flags_override_the_file(piper: str, capsys: Capture) -> None:
    """What is given counts, what is not is taken from the file."""
    arguments = ("--devices", "4", "--memory", "4GiB", "--microbatches", "8", "--json")
    found = document_of(capsys, "plan", piper, "--bandwidth", "1GiB/s", *arguments)
    assert found["microbatches"] == 8
    assert found["devices_used"] == 4
    assert max(stage["memory_bytes"] for stage in found["stages"]) <= 4 * GIB


def test_the_ablations(piper: str, capsys: Capture) -> None:
    """Each switch takes something away from the plan."""
    for flag in ("--no-data-parallel", "--no-tensor-parallel", "--no-recompute"):
        found = document_of(capsys, "plan", piper, "--memory", "9GiB", flag, "--json")
        assert found["feasible"]
    found = document_of(capsys, "plan", piper, "--no-data-parallel", "--json")
    assert [stage["data_parallel"] for stage in found["stages"]] == [1, 1]


@pytest.mark.parametrize("planner", ["exact", "equal", "exhaustive"])
def test_the_planners(planner: str, piper: str, capsys: Capture) -> None:
    """All planners are reached by name, and say who they are."""
    found = document_of(capsys, "plan", piper, "--planner", planner, "--json")
    assert found["planner"] == planner
    assert found["proven_optimal"] == (planner != "equal")
    assert found["time_per_sample_seconds"] == 4.0


def test_infeasible_is_status_1_with_a_reason(piper: str, capsys: Capture) -> None:
    """The JSON says that nothing fits and why; so does the message."""
    found = document_of(capsys, "plan", piper, "--memory", "1000B", "--json", status=1)
    assert not found["feasible"]
    assert found["reason"].startswith("layer 0 needs at least 1 GiB on each device")
    assert "stages" not in found
    assert status_of("plan", piper, "--memory", "1000B") == 1
    message = capsys.readouterr().err
    assert message.startswith("diaulos: no plan: layer 0 needs")
    assert "with 1000 B on each device, no number of devices would do" in message


def test_infeasible_says_what_would_do(piper: str, capsys: Capture) -> None:
    """The stage that lacks memory, and the least memory and the fewest devices that would do."""
    arguments = ("plan", piper, "--memory", "3GiB", "--devices", "1")
    found = document_of(capsys, *arguments, "--json", status=1)
    assert (found["least_memory_bytes"], found["fewest_devices"]) == (4 * GIB, 2)
    assert found["best_attempt"]["missing_bytes"] == GIB
    assert found["best_attempt"]["memory_by_kind"]["activations"] == 4 * GIB
    assert status_of(*arguments) == 1
    message = capsys.readouterr().err
    assert "stage 0 (layers 0-3) lacks 1 GiB (1073741824 bytes)" in message
    assert "4 GiB on each would do" in message
    assert "2 devices would do, and no fewer" in message


def test_idle_devices_are_explained(piper: str, capsys: Capture) -> None:
    """A plan that does not use all devices says why in one sentence."""
    assert status_of("plan", piper, "--devices", "5") == 0
    assert "1 device stays idle: it is proven that" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--memory", "8 parsecs"), "'8 parsecs' is not a size"),
        (("--bandwidth", "0"), "'0' is not a bandwidth"),
        (("--devices", "0"), "devices is 0"),
        (("--devices", "many"), "many"),
        (("--microbatches", "0"), "microbatches is 0"),
        (("--planner", "magic"), "magic"),
        (("--colour", "red"), "--colour"),
    ],
)
def test_bad_input_is_status_2(
    arguments: tuple[str, ...], message: str, piper: str, capsys: Capture
) -> None:
    """The message stands on standard error, under --json too, and nothing on standard output."""
    for json_flag in ((), ("--json",)):
        assert status_of("plan", piper, *arguments, *json_flag) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("diaulos: ")
        assert message in captured.err
        assert captured.out == ""


def test_a_bad_file_is_named_with_the_place(tmp_path: Path, capsys: Capture) -> None:
    """Errors in a graph's file have the path in it."""
    path = tmp_path / "broken.json"
    path.write_text('{"maxDevices": 2, "maxMemoryPerDevice": -1}')
    assert status_of("plan", str(path)) == 2
    assert f"{path}: $ lacks the key 'bandwidth'" in capsys.readouterr().err


def test_the_project_s_own_graphs_need_a_cluster(tmp_path: Path, capsys: Capture) -> None:
    """A graph without a cluster asks for what is missing; a cluster file gives it."""
    graph, cluster = tmp_path / "graph.json", tmp_path / "cluster.toml"
    write_graph(graph, chain([option(seconds=1.0)], [option(seconds=1.0)]))
    assert status_of("plan", str(graph), "--devices", "2") == 2
    assert "--memory, --bandwidth not given" in capsys.readouterr().err
    write_cluster(
        cluster, Cluster.flat(devices=2, memory_bytes=GIB, bandwidth_bytes_per_second=1e9)
    )
    assert status_of("plan", str(graph), "--cluster", str(cluster)) == 2
    assert "--microbatches not given" in capsys.readouterr().err
    arguments = ("plan", str(graph), "--cluster", str(cluster), "--microbatches", "2", "--json")
    assert document_of(capsys, *arguments)["devices_used"] == 2


def test_the_table_is_plain_text_in_a_pipe(
    piper: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line for each stage and one for the plan, without colours or control characters."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert status_of("plan", piper, "--no-data-parallel") == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert "\x1b" not in text
    assert [word for word in ("layers", "in flight", "of limit") if word not in lines[0]] == []
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]
    assert lines[-1].startswith(
        "16 s per batch of 4 microbatches with 2bw, 4 s per sample, 2 of 2 devices; proven optimal"
    )


def test_a_plan_is_written_and_checked(piper: str, tmp_path: Path, capsys: Capture) -> None:
    """`-o` writes a plan that `diaulos check` prices as the planner did."""
    path = tmp_path / "plan.json"
    found = document_of(capsys, "plan", piper, "-o", str(path), "--json")
    assert read_plan(path).made_by["planner"] == "exact"
    checked = document_of(capsys, "check", str(path), "--json")
    assert checked["valid"]
    assert checked["stages"] == found["stages"]
    assert status_of("check", str(path)) == 0
    assert "valid: 16 s per batch of 4 microbatches with 2bw" in capsys.readouterr().out


def test_a_broken_plan_fails_its_check(piper: str, tmp_path: Path, capsys: Capture) -> None:
    """Status 1, with every broken rule as a sentence, in JSON as well."""
    path = tmp_path / "plan.json"
    assert status_of("plan", piper, "-o", str(path)) == 0
    path.write_text(path.read_text().replace('"data_parallel": 2', '"data_parallel": 3'))
    capsys.readouterr()
    found = document_of(capsys, "check", str(path), "--json", status=1)
    assert not found["valid"]
    assert "stage 0 has data-parallel degree 3, which does not divide" in found["violations"][0]
    assert status_of("check", str(path)) == 1
    assert "the plan breaks 3 rules" in capsys.readouterr().err


def test_a_changed_graph_is_noted(piper: str, tmp_path: Path, capsys: Capture) -> None:
    """A plan whose graph has changed since is priced with the new one, and that is said."""
    path = tmp_path / "plan.json"
    assert status_of("plan", piper, "-o", str(path)) == 0
    Path(piper).write_text(Path(piper).read_text().replace("2.0", "2.5"))
    capsys.readouterr()
    assert status_of("check", str(path)) == 0
    captured = capsys.readouterr()
    assert "has changed since the plan was made" in captured.out + captured.err


NODES = """
format = "diaulos.cluster/1"
[link]
bandwidth = "1GB/s"
latency_seconds = 0.25
[[groups]]
name = "a"
nodes = 2
devices_per_node = 2
memory = "100GiB"
[groups.link]
bandwidth = "10GB/s"
duplex = true
"""


@pytest.fixture
def nodes(tmp_path: Path) -> str:
    """A cluster of two nodes of two devices."""
    path = tmp_path / "nodes.toml"
    path.write_text(NODES)
    return str(path)


def test_a_plan_on_nodes_says_where_its_stages_stand(
    piper: str, nodes: str, tmp_path: Path, capsys: Capture
) -> None:
    """In JSON, in the table, and in the file, which `check` prices in the same way."""
    path = tmp_path / "plan.json"
    flags = ("--cluster", nodes, "--planner", "exhaustive", "--schedule", "1f1b", "--reserve", "1B")
    found = document_of(capsys, "plan", piper, *flags, "-o", str(path), "--json")
    # One microbatch of 8 s on each of four replicas, and a ring of 2*3 messages between nodes.
    assert [stage["first_device"] for stage in found["stages"]] == [0]
    assert [stage["devices"] for stage in found["stages"]] == [["nodes 0-1: 0-1"]]
    assert found["batch_seconds"] == pytest.approx(8 + 2 * 3 * 0.25)
    checked = document_of(capsys, "check", str(path), "--json")
    assert checked["batch_seconds"] == found["batch_seconds"]
    assert checked["stages"] == found["stages"]
    assert status_of("check", str(path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "devices" in lines[0]
    assert "nodes 0-1: 0-1" in lines[1]
    assert "with 1f1b" in lines[-1]
    stored = read_plan(path)
    assert stored.costs.reserve_bytes == 1.0
    assert stored.costs.counts_latency


def test_the_equal_planner_knows_piper_s_model_alone(
    piper: str, nodes: str, capsys: Capture
) -> None:
    """What it cannot plan is refused by name."""
    for flags, message in (
        (("--cluster", nodes), "the cluster has several nodes"),
        (("--schedule", "gpipe"), "the schedule is gpipe"),
        (("--cost-model", "detailed"), "the costs are not Piper's"),
        (("--shard-optimizer",), "the optimizer may be sharded"),
    ):
        assert status_of("plan", piper, "--planner", "equal", *flags) == 2
        assert message in capsys.readouterr().err


def test_figures_of_a_cluster_with_nodes_are_not_overridden(
    piper: str, nodes: str, capsys: Capture
) -> None:
    """Which devices would be meant is not known."""
    assert status_of("plan", piper, "--cluster", nodes, "--memory", "1GiB") == 2
    assert "can only be replaced where there is one of each" in capsys.readouterr().err


def test_flushed_plans_are_simulated(piper: str, capsys: Capture, tmp_path: Path) -> None:
    """The simulator's figure stands beside the closed form's; the plan file says who judged."""
    output = tmp_path / "plan.json"
    found = document_of(capsys, "plan", piper, "--schedule", "1f1b", "--json", "-o", str(output))
    assert found["schedule"] == "1f1b"
    assert found["simulated_batch_seconds"] == found["batch_seconds"] == 16.0
    assert found["considered"][0]["stages"] == 1
    stored = json.loads(output.read_text())
    assert stored["made_by"]["judge"] == "simulator"
    assert read_plan(output).problem.pipelining.name == "1f1b"
    assert status_of("plan", piper, "--schedule", "1f1b") == 0
    assert "simulated, a batch takes 16 s; the closed form says 16 s" in capsys.readouterr().out


def test_other_planners_keep_their_plan(piper: str, capsys: Capture) -> None:
    """It is simulated, not chosen by that."""
    flags = ("--planner", "exhaustive", "--schedule", "gpipe", "--json")
    found = document_of(capsys, "plan", piper, *flags)
    assert (found["planner"], found["simulations"]) == ("exhaustive", 1)
    assert found["simulated_batch_seconds"] == 16.0


def test_schedules_are_compared(piper: str, capsys: Capture) -> None:
    """All of them, the best one's plan in full."""
    found = document_of(capsys, "plan", piper, "--schedule", "auto", "--json")
    names = {entry["schedule"] for entry in found["schedules"]}
    assert names == {"2bw", "1f1b", "gpipe", "zb-h1"}
    assert found["schedule"] == found["schedules"][0]["schedule"]
    assert found["stages"][0]["layers"][0] == 0
    assert status_of("plan", piper, "--schedule", "auto") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:4] == ["schedule", "stages", "closed", "form"]
    assert len(lines[1:5]) == len({line.split()[0] for line in lines[1:5]})


def test_no_schedule_may_fit(piper: str, capsys: Capture) -> None:
    """Status 1, and the reason for each, in JSON as well."""
    flags = ("--memory", "1GiB", "--schedule", "auto")
    found = document_of(capsys, "plan", piper, *flags, "--json", status=1)
    assert not found["feasible"]
    assert len(found["schedules"]) == 4
    assert status_of("plan", piper, *flags) == 1
    assert capsys.readouterr().err.count("no plan for") == 4


@pytest.mark.parametrize("command", [("compare",), ("plan", "--planner", "equal")])
def test_only_the_exact_planner_compares_schedules(
    command: tuple[str, ...], piper: str, capsys: Capture
) -> None:
    """Elsewhere `auto` is refused, with what to give."""
    assert status_of(command[0], piper, *command[1:], "--schedule", "auto") == 2
    assert "give one of 2bw, gpipe, 1f1b, zb-h1" in " ".join(capsys.readouterr().err.split())
