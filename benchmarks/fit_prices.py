"""Set what devices sustain in training by two thirds of the measured runs, and test by the others.

    python benchmarks/fit_prices.py ../shared/reference/measured

All other constants of a device come from its data sheet and from short measurements. Each file
counts as much as any other, and an error above 20 % as one of 20 %, since some runs were slow for
reasons of their own. Prints the loss by value, and the errors of both parts of the rows at the best
one. Takes a minute.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, mean

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.measured.cases import Case, Comparison, Quantity, compare_case
from diaulos.estimating.measured.validate import READERS
from diaulos.estimating.pipeline import Simulators

FILES: Mapping[str, Sequence[str]] = {
    "A100-80GB": (
        "seqpar_mlsys23.csv",
        "megatron_sc21_table1.csv",
        "vtrain_a100_multinode.csv",
        "vocab_stage_times_pp8.csv",
    ),
    "H100-96GB-500W": ("torchtitan_llama3_h100.csv",),
}
"""By device."""
LEFT_OUT = ("float8",)
MOST_ERROR = 0.2
VALUES = [round(0.01 * hundredth, 2) for hundredth in range(70, 101, 2)]

Cases = Mapping[str, Sequence[Case]]
Found = Mapping[str, Sequence[Comparison]]


def changed(cluster: Cluster, sustained: float) -> Cluster:
    (group,) = cluster.groups
    assert group.device is not None
    efficiency = replace(group.device.efficiency, sustained=sustained)
    device = replace(group.device, efficiency=efficiency)
    return replace(cluster, groups=(replace(group, device=device),))


def cases_on(device: str, folder: Path) -> Cases:
    """Cases of a device with times, by file."""
    return {
        name: [case for case in READERS[name](folder / name) if is_of(case, device)]
        for name in FILES[device]
    }


def is_of(case: Case, device: str) -> bool:
    known = case.cluster.groups[0].device
    times = [check for check in case.checks if check.quantity is Quantity.TIME]
    return (
        known is not None
        and known.name == device
        and any(check.group not in LEFT_OUT for check in times)
    )


def compared(cases: Cases, sustained: float, simulators: Simulators) -> Found:
    return {name: list(times_of(some, sustained, simulators)) for name, some in cases.items()}


def times_of(
    cases: Sequence[Case], sustained: float, simulators: Simulators
) -> Iterator[Comparison]:
    for case in cases:
        moved = replace(case, cluster=changed(case.cluster, sustained))
        for comparison in compare_case(moved, simulators):
            if comparison.quantity is Quantity.TIME:
                yield comparison


def loss(found: Found) -> float:
    """The mean over files of the mean squared error of what is not held out."""
    return mean(
        fmean(min(abs(one.error), MOST_ERROR) ** 2 for one in some if not one.held_out)
        for some in found.values()
    )


def report(found: Found) -> None:
    for name, some in found.items():
        for group in dict.fromkeys(one.group for one in some):
            parts = []
            for held_out in (False, True):
                errors = [x.error for x in some if x.group == group and x.held_out is held_out]
                size = f"{fmean(map(abs, errors)):6.1%} {fmean(errors):+6.1%}" if errors else "-"
                parts.append(f"{len(errors):3} {size:14}")
            print(f"  {name:28} {group:10} fitted {parts[0]}  held out {parts[1]}")


def main() -> None:
    folder = Path(sys.argv[1])
    for device in FILES:
        cases, simulators = cases_on(device, folder), Simulators()
        found = {value: compared(cases, value, simulators) for value in VALUES}
        losses = {value: loss(some) for value, some in found.items()}
        best = min(losses, key=lambda value: losses[value])
        print(f"{device}: sustained {best}; rows, mean absolute error, bias:")
        report(found[best])
        print("  loss", {value: round(one, 6) for value, one in losses.items()})


if __name__ == "__main__":
    main()
