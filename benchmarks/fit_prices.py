"""Set the efficiencies of the A100 by two thirds of the measured runs, and test by the others.

    python benchmarks/fit_prices.py ../shared/reference/measured

Coordinate search from the values of the device's file: each constant in turn is made a little
larger or smaller as long as that lessens the error of the rows that are not held out. Each file
counts as much as any other, and an error above 20 % as one of 20 %, since some runs were slow for
reasons of their own. Prints the constants, and the errors of both parts. Takes a few minutes.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import mean

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.measured.cases import Case, Comparison, Quantity, compare_case
from diaulos.estimating.measured.validate import READERS
from diaulos.estimating.pipeline import Simulators

FILES = (
    "seqpar_mlsys23.csv",
    "megatron_sc21_table1.csv",
    "vtrain_a100_multinode.csv",
    "vocab_stage_times_pp8.csv",
)
MOST_ERROR = 0.2
STEPS = (0.06, 0.02, 0.007)
SHARES = ("matrix_product", "memory")
EFFICIENCIES = (*SHARES, "inner_ramp")

Constants = Mapping[str, float]


def current(cluster: Cluster) -> dict[str, float]:
    """The constants as the files of the package have them."""
    (group,) = cluster.groups
    assert group.device is not None
    efficiency = group.device.efficiency
    return {
        **{name: getattr(efficiency, name) for name in EFFICIENCIES},
        "launch_seconds": group.device.launch_seconds,
    }


def changed(cluster: Cluster, constants: Constants) -> Cluster:
    """The cluster with these constants."""
    (group,) = cluster.groups
    assert group.device is not None
    efficiency = replace(
        group.device.efficiency, **{name: constants[name] for name in EFFICIENCIES}
    )
    device = replace(
        group.device, efficiency=efficiency, launch_seconds=constants["launch_seconds"]
    )
    return replace(cluster, groups=(replace(group, device=device),))


def compared(
    files: Mapping[str, list[Case]], constants: Constants, simulators: Simulators
) -> dict[str, list[Comparison]]:
    """All times with these constants, by file."""
    return {
        name: [
            comparison
            for case in cases
            for comparison in compare_case(
                replace(case, cluster=changed(case.cluster, constants)), simulators
            )
            if comparison.quantity is Quantity.TIME
        ]
        for name, cases in files.items()
    }


def loss(found: Mapping[str, list[Comparison]]) -> float:
    """The mean over files of the mean squared error of what is not held out."""
    return mean(
        mean(min(abs(one.error), MOST_ERROR) ** 2 for one in some if not one.held_out)
        for some in found.values()
    )


def fit(files: Mapping[str, list[Case]], start: Constants) -> Constants:
    """The constants after the search."""
    fitted = {name: [case for case in cases if not case.held_out] for name, cases in files.items()}
    simulators = Simulators()
    best, least = dict(start), loss(compared(fitted, start, simulators))
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for name in tuple(best):
                for factor in (1 + step, 1 / (1 + step)):
                    tried = {**best, name: best[name] * factor}
                    if name in SHARES and tried[name] > 1:
                        continue
                    found = loss(compared(fitted, tried, simulators))
                    if found < least * (1 - 1e-4):
                        best, least, improved = tried, found, True
            print(f"step {step}: loss {least:.6f} " + format_constants(best), flush=True)
    return best


def format_constants(constants: Constants) -> str:
    return " ".join(f"{name}={value:.4g}" for name, value in constants.items())


def report(files: Mapping[str, list[Case]], constants: Constants) -> None:
    for name, some in compared(files, constants, Simulators()).items():
        for group in sorted({one.group for one in some}):
            parts = []
            for held_out in (False, True):
                rows = [x for x in some if x.group == group and x.held_out is held_out]
                size = mean(abs(x.error) for x in rows) if rows else float("nan")
                bias = mean(x.error for x in rows) if rows else float("nan")
                parts.append(f"{len(rows):3} rows {size:6.1%} bias {bias:+6.1%}")
            print(f"{name:28} {group:10} fitted {parts[0]}   held out {parts[1]}")


def main() -> None:
    folder = Path(sys.argv[1])
    files = {name: list(READERS[name](folder / name)) for name in FILES}
    start = current(next(iter(chain(*files.values()))).cluster)
    report(files, start)
    best = fit(files, start)
    report(files, best)


if __name__ == "__main__":
    main()
