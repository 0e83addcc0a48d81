"""`diaulos estimate`: the tables, the JSON, sizes instead of a config, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_plan import status_of
from tests.models.decoders.published import CONFIGS

CLUSTER = ("--cluster", "8x8xA100-80GB")
SIZES = ("--hidden", "12288", "--layers", "96", "--heads", "96", "--vocab", "51200")
WAYS = ("--tensor-parallel", "8", "--pipeline-parallel", "8", "--batch-size", "64")
LENGTH = ("--sequence-length", "2048")
KINDS = {
    "parameters",
    "gradients",
    "optimizer",
    "versions",
    "activations",
    "temporary",
    "buffers",
    "reserve",
    "total",
}


@pytest.fixture
def config(tmp_path: Path) -> str:
    """Llama 3 with 8 B."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["llama-3-8b"]))
    return str(tmp_path)


def test_json_has_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The keys are those of the issue, the parts add up, and memory adds up by kind."""
    ways = (*WAYS, "--virtual-stages", "3", "--recompute", "selective", "--sequence-parallel")
    assert status_of("estimate", *SIZES, *CLUSTER, *ways, *LENGTH, "--json") == 0
    found = json.loads(capsys.readouterr().out)

    assert found["step_seconds"] == pytest.approx(sum(found["parts"].values()))
    named = ("compute", "tensor-parallel", "pipeline", "data-parallel", "optimizer", "bubble")
    assert set(named) <= set(found["parts"])
    tokens = 64 * 2048 / found["step_seconds"]
    assert found["tokens_per_second"] == pytest.approx(tokens)
    assert found["tokens_per_second_per_device"] == pytest.approx(tokens / 64)
    assert found["mfu"] == pytest.approx(found["model_tflops_per_device"] / 312)
    assert found["mfu"] < found["hfu"] < 1
    assert found["bubble_fraction"] == found["parts"]["bubble"] / found["step_seconds"]
    assert [stage["blocks"] for stage in found["stages"]] == [12] * 8
    for stage in found["stages"]:
        memory = stage["memory"]
        assert set(memory) == KINDS
        assert memory["total"] == pytest.approx(
            sum(size for kind, size in memory.items() if kind != "total")
        )


def test_the_table_groups_equal_stages(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Rates stand first; stages with the same figures share a row."""
    flags = ("--cluster", "4x8xH100-80GB", "--pipeline-parallel", "4", "--batch-size", "64")
    assert status_of("estimate", config, *flags, *LENGTH, "--schedule", "gpipe", "--zero", "1") == 0
    printed = capsys.readouterr().out

    assert "8.03 B parameters on 32 devices (4x8xH100-80GB)" in printed
    assert "tokens/s per device" in printed
    assert "1-2 " in printed
    assert "optimizer" in printed


def test_what_does_not_fit_ends_with_1(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are printed, and the shortage is told with what would help."""
    flags = ("--cluster", "1xH100-80GB", "--batch-size", "8", "--sequence-length", "8192")
    assert status_of("estimate", config, *flags, "--json") == 1
    captured = capsys.readouterr()

    assert json.loads(captured.out)["fits"] is False
    assert "stage 0 needs" in captured.err
    assert "--zero would help" in captured.err


def test_blocks_can_be_given(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--layers-per-stage says how many blocks each stage has."""
    flags = ("--cluster", "4xH100-80GB", "--pipeline-parallel", "4", "--batch-size", "8")
    given = ("--layers-per-stage", "7,9,9,7", "--zero", "1", "--json")
    assert status_of("estimate", config, *flags, *LENGTH, *given) in (0, 1)
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [stage["blocks"] for stage in stages] == [7, 9, 9, 7]
    assert stages[0]["layers"][0] == "embedding"
    assert stages[3]["layers"][-3:] == ["final_norm", "head", "loss"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SIZES[:4], *CLUSTER, *WAYS), "--heads, --vocab not given"),
        ((*SIZES, *CLUSTER, *WAYS, "--layers-per-stage", "12,x"), "one whole number for each"),
        ((*SIZES, *CLUSTER, *WAYS, "--data-parallel", "2"), "are 128 devices"),
        ((*SIZES, *CLUSTER, *WAYS, "--layers-per-stage", "12,12"), "given for 2 stages"),
        ((*SIZES, "--cluster", "8x8xA100-80G", *WAYS), "did you mean A100-80GB"),
        (("absent.json", *CLUSTER, *WAYS), "absent.json: cannot be read"),
        ((*SIZES, *CLUSTER, *WAYS, "--precision", "fp8"), "does not compute in fp8"),
        ((*SIZES[:5], "95", *SIZES[6:], *CLUSTER, *WAYS), "hidden must be a multiple of heads"),
        ((*SIZES, *CLUSTER, *WAYS, "--kv-heads", "5"), "multiple of the key-value heads"),
    ],
)
def test_wrong_input_ends_with_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence says what is wrong."""
    assert status_of("estimate", *arguments, *LENGTH) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_config_and_sizes_exclude_each_other(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model is given once."""
    assert status_of("estimate", config, *SIZES, *CLUSTER, *WAYS, *LENGTH) == 2
    assert "--hidden, --layers, --heads, --vocab given beside" in capsys.readouterr().err


def test_no_framework_is_loaded(config: str) -> None:
    """An estimate imports neither torch nor transformers."""
    program = (
        "import sys; from diaulos.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n"
        "    assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    flags = ("--cluster", "8xH100-80GB", "--tensor-parallel", "8", "--batch-size", "8")
    command = [sys.executable, "-c", program, "estimate", config, *flags, *LENGTH]
    subprocess.run(command, check=True, capture_output=True)


def test_a_layout_with_stages_without_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue case C2: 61 blocks as Megatron-LM writes it, the last stages without any."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["deepseek-v3"]))
    words = (str(tmp_path), "--cluster", "128x8xH100-80GB", "--tensor-parallel", "2")
    words += ("--pipeline-parallel", "8", "--virtual-stages", "4", "--expert-parallel", "64")
    words += ("--batch-size", "8192", "--sequence-length", "4096", "--recompute", "full")
    words += ("--layers-per-stage", "Et*3|(tt|)*29|L", "--zero", "1", "--json")
    assert status_of("estimate", *words) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [stage["blocks"] for stage in stages] == [9, 8, 8, 8, 8, 8, 6, 6]
