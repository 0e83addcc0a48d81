"""`diaulos validate`: a table, all rows as JSON, and folders without measurements."""

import json
from pathlib import Path

import pytest

from tests.cli.test_plan import status_of

HEADER = (
    "model,hidden,heads,layers,params_B,seq,vocab,tp,pp,dp,vp,micro_batch,global_batch,gpus,gpu,"
    "recompute,iter_time_s_derived\n"
)
ROWS = "".join(
    f"small,2304,24,24,1.7,2048,51200,1,1,8,1,16,512,8,A100-80GB,full,{seconds}\n"
    for seconds in (14.0, 28.0, 7.0)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of three rows."""
    (tmp_path / "megatron_sc21_table1.csv").write_text(HEADER + ROWS)
    return tmp_path


def test_rows_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every row has its error, and every third is held out."""
    assert status_of("validate", str(folder), "--json") == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]

    assert file["name"] == "megatron_sc21_table1.csv"
    assert [row["measured"] for row in file["rows"]] == [14.0, 28.0, 7.0]
    assert [row["held_out"] for row in file["rows"]] == [False, False, True]
    predicted = {row["predicted"] for row in file["rows"]}
    assert len(predicted) == 1
    for row in file["rows"]:
        assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
    (group,) = file["groups"]
    sizes = sorted(abs(row["error"]) for row in file["rows"])
    assert group["rows"] == 3
    assert group["median_absolute_error"] == sizes[1]
    assert group["mean_absolute_error"] == pytest.approx(sum(sizes) / 3)
    assert abs(group["worst"]["error"]) == sizes[2]
    assert group["held_out_rows"] == 1


def test_the_table_has_a_row_for_each_group(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures and the worst row stand in it."""
    assert status_of("validate", str(folder)) == 0
    printed = capsys.readouterr().out
    assert "held out" in printed
    assert "small on 8, t=1 p=1 d=8 v=1 microbatch=16 full" in printed


def test_folders_without_measurements_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names that are known are told."""
    assert status_of("validate", str(tmp_path)) == 2
    assert "seqpar_mlsys23.csv" in capsys.readouterr().err
