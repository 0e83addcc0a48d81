"""Models without a closed form are estimated like others."""

import json
from pathlib import Path

import pytest

from diaulos.clusters.expression import parse_cluster
from diaulos.estimating.estimate import estimate
from tests.cli.test_plan import status_of
from tests.estimating.models import configuration, published
from tests.models.traced.configs import OTHERS

pytest.importorskip("transformers", reason="needs the extra diaulos[hf]")

from tests.models.traced.test_model import model

EIGHT, SIXTEEN, ONE = map(parse_cluster, ("1x8xA100-80GB", "2x8xA100-80GB", "1xA100-80GB"))


@pytest.mark.parametrize(
    ("name", "length"),
    [("bert-large", 512), ("t5-large", 512), ("vit-large", 197), ("llama-4-scout", 4096)],
)
def test_they_are_estimated(name: str, length: int) -> None:
    """With tensor and pipeline parallelism parts add up, and no device works above its peak."""
    chosen = configuration(tensor=4, pipeline=4, sequence_length=length, sequence_parallel=True)
    found = estimate(model(name), SIXTEEN, chosen)
    assert found.parts.total == found.step_seconds
    assert 0 < found.mfu < 1
    whole = estimate(model(name), ONE, configuration(sequence_length=length))
    assert whole.stages[0].state.count == pytest.approx(found.operations.parameter_count)
    held = sum(stage.state.count for stage in found.stages)
    assert found.operations.parameter_count / 4 < held < found.operations.parameter_count


@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "qwen2-7b"])
def test_estimates_are_near_those_of_the_closed_form(name: str) -> None:
    """The time of a step agrees within a tenth, what is held within a hundredth."""
    chosen = configuration(tensor=4, pipeline=2, sequence_parallel=True)
    seen = estimate(model(name), EIGHT, chosen)
    stated = estimate(published(name), EIGHT, chosen)
    assert seen.step_seconds == pytest.approx(stated.step_seconds, rel=0.1)
    assert seen.memory_bytes == pytest.approx(stated.memory_bytes, rel=0.01)


def test_the_command_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`diaulos estimate` takes a config of any model of transformers."""
    (tmp_path / "config.json").write_text(json.dumps(OTHERS["bert-large"]))
    flags = ("--cluster", "1x8xA100-80GB", "--batch-size", "64", "--sequence-length", "512")
    assert status_of("estimate", str(tmp_path), *flags, "--json") == 0
    assert json.loads(capsys.readouterr().out)["mfu"] > 0


def test_without_transformers_it_is_told_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config without a closed form then ends with the extra's name and status 2."""
    (tmp_path / "config.json").write_text(json.dumps(OTHERS["bert-large"]))
    monkeypatch.setattr("diaulos.cli.models.find_spec", lambda _: None)
    flags = ("--cluster", "1x8xA100-80GB", "--batch-size", "64", "--sequence-length", "512")
    assert status_of("estimate", str(tmp_path), *flags) == 2
    assert "pip install 'diaulos[hf]'" in capsys.readouterr().err
