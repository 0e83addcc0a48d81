"""The command line as a process: what it imports, and with which status it ends."""

import subprocess
import sys

import pytest

from diaulos.cli.main import main


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"]])
def test_help_loads_no_heavy_module(arguments: list[str]) -> None:
    """Help and version need neither torch nor transformers nor NumPy, and end with 0."""
    result = run(
        "import sys; from diaulos.cli.main import main\n"
        f"main({arguments!r})\n"
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_planning_needs_no_torch() -> None:
    """The planners, schedules and reports are imported without torch."""
    result = run(
        "import sys, diaulos, diaulos.cli.plan, diaulos.cli.check\nsys.exit('torch' in sys.modules)"
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command stands in the help with what it does."""
    main(["--help"])
    text = capsys.readouterr().out
    for command in ("plan", "check", "simulate", "profile", "train", "demo"):
        assert f" {command} " in text


def test_an_unknown_command_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the command and points to the help."""
    with pytest.raises(SystemExit) as end:
        main(["conquer"])
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "conquer" in captured.err


def test_an_interrupt_is_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends a command as shells expect it, without a traceback."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("diaulos.cli.check.read_plan", lambda *_, **__: interrupted(None))
    with pytest.raises(SystemExit) as end:
        main(["check", "plan.json"])
    assert end.value.code == 130


def test_a_missing_extra_is_named() -> None:
    """Without torch, a command that needs it says what to install, with status 2."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from diaulos.cli.main import main; main(['train', 'run.toml'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    expected = "diaulos: this command needs torch; install it with pip install 'diaulos[train]'\n"
    assert done.stderr == expected
