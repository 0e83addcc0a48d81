"""The pages: every command in them runs, and prints what stands below it."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DURATION = re.compile(r"[0-9.]+ (s|ms|us|ns)$", re.MULTILINE)


def _refresh():
    specification = importlib.util.spec_from_file_location("refresh", ROOT / "docs/refresh.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_page_shows(page):
    """Refreshing a page changes nothing but how long a search took."""
    refresh, text = _refresh(), page.read_text()
    refreshed = refresh.BLOCK.sub(refresh.refreshed, text)

    assert DURATION.sub("-", refreshed) == DURATION.sub("-", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Every relative link of a page is a file."""
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
