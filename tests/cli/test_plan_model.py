"""`diaulos plan` for a model: the answer can be repeated, and what is missing or wrong is named."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.test_plan import status_of
from tests.models.decoders.published import CONFIGS

CLUSTER = ("--cluster", "2x8xH100-80GB")
BATCH = ("--batch-size", "256", "--sequence-length", "4096")
Capture = pytest.CaptureFixture[str]


def config(folder: Path, name: str) -> str:
    """The folder of a model."""
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    return str(folder)


def test_the_answer_can_be_repeated(tmp_path: Path, capsys: Capture) -> None:
    """The command in the last line estimates what the best and its JSON say."""
    source = config(tmp_path, "llama-3-8b")
    assert status_of("plan", source, *CLUSTER, *BATCH, "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert status_of("plan", source, *CLUSTER, *BATCH) == 0
    command = shlex.split(capsys.readouterr().out.strip().splitlines()[-1])
    assert command[:2] == ["diaulos", "estimate"]
    assert status_of(*command[1:], "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["step_seconds"] == planned["best"]["step_seconds"]
    assert again["stages"] == planned["best"]["stages"]
    assert len(planned["alternatives"]) == 4
    assert len(planned["doubts"]) == 4


def test_sizes_instead_of_a_config(capsys: Capture) -> None:
    """The best of one schedule, for sizes; 2bw is searched only where asked for."""
    sizes = ("--hidden", "4096", "--layers", "32", "--heads", "32", "--vocab", "51200")
    for schedule in ("2bw", "interleaved", "zb-h1", "1f1b"):
        words = (*sizes, *CLUSTER, *BATCH, "--schedule", schedule, "--json")
        assert status_of("plan", *words) == 0
        planned = json.loads(capsys.readouterr().out)
        found = [planned["best"], *planned["alternatives"]]
        piped = [one["configuration"] for one in found]
        names = {one["schedule"] for one in piped if one["pipeline_parallel"] > 1}
        assert names <= {"zero-bubble" if schedule == "zb-h1" else schedule}
    assert status_of("plan", *sizes, *CLUSTER, *BATCH, "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["best"]["configuration"]["schedule"] != "2bw"


def test_the_largest_llama_needs_a_pipeline(tmp_path: Path, capsys: Capture) -> None:
    """Issue case C1: 405 B on 512 H100 with 96 GB are cut into stages and layers."""
    source = config(tmp_path, "llama-3.1-405b")
    words = ("--cluster", "64x8xH100-96GB-500W", "--batch-size", "512", "--sequence-length", "8192")
    assert status_of("plan", source, *words, "--json") == 0
    chosen = json.loads(capsys.readouterr().out)["best"]["configuration"]
    assert chosen["pipeline_parallel"] > 1
    assert chosen["tensor_parallel"] > 1


@pytest.mark.parametrize(
    ("trainer", "flag"),
    [
        ("megatron", "--tensor-model-parallel-size"),
        ("torchtitan", "--parallelism.tensor_parallel_degree"),
    ],
)
def test_flags_of_other_trainers(trainer: str, flag: str, tmp_path: Path, capsys: Capture) -> None:
    """They stand in the last line and in the JSON; schedules that it has not are refused."""
    words = (config(tmp_path, "llama-3-8b"), *CLUSTER, *BATCH, "--trainer", trainer)
    assert status_of("plan", *words) == 0
    assert flag in capsys.readouterr().out.strip().splitlines()[-1]
    assert status_of("plan", *words, "--json") == 0
    assert any(flag in some for some in json.loads(capsys.readouterr().out)["flags"])
    assert status_of("plan", *words, "--schedule", "2bw") == 2
    assert "--schedule is 2bw" in capsys.readouterr().err


def test_nothing_fits(tmp_path: Path, capsys: Capture) -> None:
    """Exit 1, with what the leanest configuration needs."""
    source = config(tmp_path, "llama-3-70b")
    words = ("--cluster", "4xA100-40GB", "--batch-size", "8", "--sequence-length", "8192")
    assert status_of("plan", source, *words) == 1
    message = capsys.readouterr().err
    assert "the leanest needs" in message
    assert status_of("plan", source, *words, "--json") == 1
    assert json.loads(capsys.readouterr().out)["feasible"] is False


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (BATCH, "--cluster not given"),
        ((*CLUSTER, "--sequence-length", "8"), "--batch-size not given"),
        ((*CLUSTER, "--batch-size", "8"), "--sequence-length not given"),
        ((*CLUSTER, *BATCH, "--devices", "8"), "--devices given for a model"),
        ((*CLUSTER, *BATCH, "--no-recompute", "--reserve", "2GiB"), "--recompute, --reserve given"),
        ((*CLUSTER, *BATCH, "--planner", "equal"), "--planner"),
        ((*CLUSTER, *BATCH, "-o", "plan.json", "--trainer", "megatron"), "--output"),
        ((*CLUSTER, *BATCH, "--hidden", "64"), "--hidden given beside"),
        (("--cluster", "2x8xH101-80GB", *BATCH), "H101"),
        ((*CLUSTER, "--batch-size", "0", "--sequence-length", "8"), "batch_size is 0"),
    ],
)
def test_what_is_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: Capture
) -> None:
    """Exit 2 and one sentence that names the flag."""
    assert status_of("plan", config(tmp_path, "llama-3-8b"), *words) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_model(tmp_path: Path, capsys: Capture) -> None:
    """The type is named, with what is known."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lama"}))
    assert status_of("plan", str(tmp_path), *CLUSTER, *BATCH) == 2
    assert "lama" in capsys.readouterr().err


def test_flags_of_models_are_refused_for_graphs(tmp_path: Path, capsys: Capture) -> None:
    """A layer graph has its prices already."""
    (tmp_path / "graph.json").write_text(json.dumps({"nodes": [], "edges": []}))
    words = ("--sequence-length", "8")
    assert status_of("plan", str(tmp_path / "graph.json"), *words) == 2
    assert "flags of a model" in capsys.readouterr().err


def test_a_plan_file(tmp_path: Path, capsys: Capture) -> None:
    """It is valid; the planner prices it a little higher, since it lets nothing overlap."""
    plan = str(tmp_path / "plan.json")
    words = ("--cluster", "4x8xA100-40GB", "--batch-size", "256", "--sequence-length", "4096")
    source = config(tmp_path, "qwen2-7b")
    assert status_of("plan", source, *words, "--schedule", "1f1b", "-o", plan, "--json") == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert status_of("check", plan, "--json") == 0
    checked = json.loads(capsys.readouterr().out)
    assert len(checked["stages"]) == best["configuration"]["pipeline_parallel"]
    assert 0.98 < checked["batch_seconds"] / best["step_seconds"] < 1.25
    memory = max(stage["memory"]["total"] for stage in best["stages"])
    assert max(stage["memory_bytes"] for stage in checked["stages"]) == pytest.approx(
        memory, rel=0.1
    )
    assert status_of("explain", plan, "--json") == 0


@pytest.mark.parametrize("schedule", ["2bw", "1f1b", "zb-h1", "gpipe"])
def test_plan_files_have_the_schedule(schedule: str, tmp_path: Path, capsys: Capture) -> None:
    """A plan is for the schedule that was asked for."""
    plan = tmp_path / "plan.json"
    words = (*CLUSTER, *BATCH, "--schedule", schedule, "-o", str(plan))
    assert status_of("plan", config(tmp_path, "llama-3-8b"), *words) == 0
    capsys.readouterr()
    assert json.loads(plan.read_text()).get("pipelining", "2bw") == schedule
    assert status_of("check", str(plan)) == 0
