"""`diaulos train --dry-run` as a user meets it."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed (extra train)")

from diaulos.cli.main import main
from diaulos.models.gpt import gpt
from tests.training.run_files import write_inputs
from tests.training.test_run_file import RUN, SGD, TOKENS
from tests.training.toy import CONFIG


def _status(*arguments: str) -> int:
    try:
        return main(list(arguments)) or 0
    except SystemExit as ended:
        return int(ended.code or 0)


def _write(folder: Path) -> Path:
    write_inputs(folder, gpt(CONFIG), shards=(1, 1))
    path = folder / "run.toml"
    path.write_text(RUN.format(top="", data=TOKENS, optimizer=SGD, rest=""))
    return path


def test_a_dry_run_says_what_each_rank_would_hold_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 0, a row for each rank, what passes between stages, and no folder."""
    assert _status("train", str(_write(tmp_path)), "--dry-run") == 0
    said = capsys.readouterr().out
    assert "2bw: 4 updates on 2 ranks, 32 tokens each, float32" in said
    assert "stage 0 to 1: float32[2, 8, 16]" in said
    assert "embedding, block_0" in said
    assert not (tmp_path / "run").exists()


def test_what_does_not_fit_has_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rank is named, with what it would hold and what its device has."""
    path = _write(tmp_path)
    plan = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(plan.replace("1000000000.0", "100000.0", 1))
    assert _status("train", str(path), "--dry-run") == 1
    assert "rank 0 would hold" in capsys.readouterr().err


def test_what_is_wrong_has_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is named, as it would be without a dry run."""
    path = _write(tmp_path)
    (tmp_path / "text.bin").unlink()
    assert _status("train", str(path), "--dry-run") == 2
    assert "text.bin: cannot be read" in capsys.readouterr().err
