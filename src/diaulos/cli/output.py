"""How commands speak: tables and sentences on stdout, one JSON object where asked, notes aside."""

import json
import sys
from typing import Any

from rich.console import Console

_LEAST_WIDTH = 140
"""Of tables, also where the output has no width: a figure cut short is none."""


def make_console() -> Console:
    """What prints tables; without colour where NO_COLOR is set or nobody looks."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, _LEAST_WIDTH)
    return console


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON object."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def note(text: str) -> None:
    """Tell something beside the output proper, on stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(text, markup=False)
