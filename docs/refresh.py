"""Runs the commands that stand in Markdown pages and puts their output below them.

A block that begins with ```console holds commands behind `$ ` and what they print. Usage:

    python docs/refresh.py README.md docs/*.md

Each block's commands run in the project's root; a command that fails ends it.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def commands(block: str) -> list[str]:
    """The commands of a block, continued lines joined."""
    joined = block.replace("\\\n", "\\\x00")
    found = [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
    return [command.replace("\\\x00", "\\\n") for command in found]


def run(command: str) -> str:
    """What a command prints; raises where it fails."""
    path = f"{Path(sys.executable).parent}"
    done = subprocess.run(  # noqa: S602 - the project's own pages
        f'PATH="{path}:$PATH"\n{command}',
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"$ {command}\nexit status {done.returncode}\n{done.stderr}")
    return done.stdout


def refreshed(block: re.Match[str]) -> str:
    """A block with the output that its commands print now."""
    lines = [f"$ {command}\n{run(command)}".rstrip() + "\n" for command in commands(block[1])]
    return "```console\n" + "".join(lines) + "```"


def main() -> None:
    """Refresh the pages given."""
    for name in sys.argv[1:]:
        page = Path(name)
        text = page.read_text(encoding="utf-8")
        page.write_text(BLOCK.sub(refreshed, text), encoding="utf-8")
        print(f"{page}: {len(BLOCK.findall(text))} blocks")  # noqa: T201


if __name__ == "__main__":
    main()
