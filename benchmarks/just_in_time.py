"""What a just-in-time compiler would cost the planner to start.

Usage: pip install numba && python benchmarks/just_in_time.py

numba is no dependency of the project. Prints its size on disk, how long its import takes, and the
first call of a loop as the planner would have it.
"""

import importlib.util
import sys
import time
from pathlib import Path

PACKAGES = ("numba", "llvmlite")


def megabytes(package: str) -> float:
    """Of all files of an installed package."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    files = Path(spec.origin).parent.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def fewest(outer, inner, first, last, replicas, cost, table):  # noqa: PLR0917
    """The fewest devices that run each downset with each sum of degrees."""
    for c in range(len(outer)):
        for total in range(first[c], last[c] + 1):
            found = table[inner[c], total - replicas[c]] + cost[c]
            table[outer[c], total] = min(table[outer[c], total], found)


def main() -> None:
    """Print the three figures."""
    sizes = ", ".join(f"{package} {megabytes(package):.0f} MB" for package in PACKAGES)
    start = time.perf_counter()
    import numba  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    imported = time.perf_counter()
    ones = np.ones(4, np.int64)
    numba.njit(fewest)(ones, ones - 1, ones, ones, ones, ones, np.zeros((2, 2), np.int64))
    called = time.perf_counter()
    print(f"{sizes}; import {imported - start:.2f} s, first call {called - imported:.2f} s")


if __name__ == "__main__":
    if importlib.util.find_spec("numba") is None:
        sys.exit("numba is not installed")
    main()
