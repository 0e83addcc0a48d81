"""The package as a whole: its public names, its examples, and what it does not import."""

import subprocess
import sys
from pathlib import Path

import pytest

import diaulos

ROOT = Path(__file__).parent.parent


def _python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", diaulos.__all__)
def test_every_public_name_can_be_had(name):
    """What the package lists, it has, and type checkers see it too."""
    assert getattr(diaulos, name) is not None
    assert f" as {name}\n" in (ROOT / "src/diaulos/__init__.py").read_text()


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name is told as Python tells it."""
    with pytest.raises(AttributeError, match="module 'diaulos' has no attribute 'plam'"):
        diaulos.plam  # noqa: B018


@pytest.mark.parametrize("name", ["", ".cli.main", ".planning.planners", ".schedules.simulate"])
def test_planning_loads_no_framework(name):
    """Neither torch nor transformers is imported by the package, its command line, or planning."""
    heavy = "[name for name in ('torch', 'transformers') if name in sys.modules]"
    code = f"import sys, diaulos{name}; print({heavy})"
    assert _python(code) == "[]"


def test_help_loads_no_framework():
    """`diaulos --help` imports neither torch nor NumPy."""
    code = """
import sys
from diaulos.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
print([m for m in ("torch", "transformers", "numpy") if m in sys.modules])
"""
    assert _python(code).splitlines()[-1] == "[]"


def test_the_quickstart_runs():
    """The example of the README runs, and 2BW is the fastest of its schedules."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples/quickstart.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = {
        line.split(":")[0]: float(line.split()[1])
        for line in done.stdout.splitlines()
        if "s a batch" in line
    }
    assert min(seconds, key=seconds.get) == "2bw"


def test_the_readme_shows_the_quickstart():
    """The Python in the README is the example that runs."""
    code = (ROOT / "examples/quickstart.py").read_text().split('"""\n', 1)[1].strip()
    assert code in (ROOT / "README.md").read_text()
