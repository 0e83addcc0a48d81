"""The page of faults names tests that exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "faults.md"


def named_tests() -> list[str]:
    """The names in the last column of the tables: `file.py`, `file.py::test`, or `::test`."""
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!---|kind)", line)]
    names, file = [], ""
    for row in rows:
        for name in re.findall(r"`([^`]+)`", row.split(" | ")[-1]):
            file = name.partition("::")[0] or file
            names.append(file + name[name.find("::") :] if "::" in name else file)
    return names


@pytest.mark.parametrize("name", sorted(set(named_tests())))
def test_it_exists(name):
    """The file is there, and has a test that begins so."""
    file, _, test = name.partition("::")
    assert f"def {test}" in (TESTS / file).read_text()


def test_every_kind_has_one():
    """No row says that it has none."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 60
    assert not [row for row in rows if row.endswith("| none |")]
