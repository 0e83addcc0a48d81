"""`diaulos trace diff`."""

import json
from pathlib import Path

import pytest

from diaulos.cli.main import main
from diaulos.cli.simulate import simulate
from diaulos.cli.trace import diff
from diaulos.schedules.timeline import write_timeline
from tests.reporting.runs import jittery, simulated


def files(folder: Path, measured: str = "2bw") -> tuple[Path, Path]:
    """A planned trace as `diaulos simulate` writes it, and a measured timeline."""
    planned, ran = folder / "planned.json", folder / "measured.json"
    simulate(depth=2, microbatches=2, schedule=["2bw"], batches=3, trace=planned)
    write_timeline(ran, jittery(simulated(measured, 2, 2, batches=4)))
    return planned, ran


def test_a_run_is_compared_with_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace and a timeline: the step, a row for each stage and kind, and the order."""
    planned, measured = files(tmp_path)
    capsys.readouterr()
    diff(planned, measured)
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("step: 6 s planned, 6.")
    assert [row.split()[:2] for row in rows[2:6]] == [
        ["0", "forward"], ["0", "backward"], ["0", "update"], ["0", "waiting"],
    ]  # fmt: skip
    assert rows[-1] == "order: as planned on every rank"
    diff(planned, measured, as_json=True)
    assert json.loads(capsys.readouterr().out)["as_planned"]


def test_the_records_of_a_run_are_read_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ranks write down while they run is enough."""
    pytest.importorskip("torch")
    planned, _ = files(tmp_path)
    ran = jittery(simulated("2bw", 2, 2, batches=3))
    for rank in range(2):
        lines = [
            json.dumps({"action": str(e.action), "start": e.start_seconds, "end": e.end_seconds})
            for e in ran.of_rank(rank)
        ]
        record = tmp_path / f"rank_{rank}.jsonl"
        record.write_text("\n".join(lines), encoding="utf-8")
    capsys.readouterr()
    diff(planned, tmp_path, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["as_planned"]
    assert found["measured_step_seconds"] == pytest.approx(ran.step_seconds)


@pytest.mark.parametrize(
    ("measured", "flags", "status"),
    [("2bw", ["--strict"], 0), ("1f1b", [], 0), ("1f1b", ["--strict"], 1), (None, [], 2)],
)
def test_the_exit_status_tells_what_happened(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    measured: str | None,
    flags: list[str],
    status: int,
) -> None:
    """Another order is a failed check only where that is asked for; a missing file is bad input."""
    planned, ran = files(tmp_path, measured or "2bw")
    if measured is None:
        ran.unlink()
    found = 0
    try:
        main(["trace", "diff", str(planned), str(ran), *flags])
    except SystemExit as ended:
        found = ended.code
    assert found == status
    captured = capsys.readouterr()
    assert ("differs in order at its computation" in captured.out) == (measured == "1f1b")
    assert ("does not do what" in captured.err) == (status == 1)
