"""`diaulos calibrate`: measure this machine, so that prices follow from it."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from diaulos.cli.output import make_console, note, print_json
from diaulos.clusters.files import cluster_document, write_cluster
from diaulos.pricing.calibration.calibrate import Calibration, calibrate_cpu, calibrate_gpu
from diaulos.reporting.calibration import calibration_table, error_document
from diaulos.units import format_bytes, format_seconds, parse_bytes


def calibrate(
    *,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    device: Literal["cpu", "cuda"] = "cpu",
    processes: int | None = None,
    threads: int = 1,
    memory: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Measure this machine's products, memory, attention, optimizer and links; about a minute.

    The file that it writes is a cluster: give it to other commands with --cluster.

    Parameters
    ----------
    output
        Where to write the cluster, TOML.
    device
        What to measure: the CPU, or the GPUs by the first of them.
    processes
        Into how many devices the CPU is split, which measure at the same time; as many as it has
        cores for, unless given.
    threads
        Of each process.
    memory
        Of each device, such as 8GiB; its share of the machine's unless given.
    as_json
        Print one JSON object instead of the table.
    """
    memory_bytes = None if memory is None else parse_bytes(memory)
    if device == "cuda":
        found = calibrate_gpu(memory_bytes=memory_bytes)
    else:
        found = calibrate_cpu(
            processes=_usual_processes(threads) if processes is None else processes,
            threads=threads,
            memory_bytes=memory_bytes,
        )
    if as_json:
        print_json(_document(found))
    else:
        _print(found)
    if output is not None:
        write_cluster(output, found.cluster)
        note(f"wrote {output}; give it to other commands with --cluster {output}")


def _usual_processes(threads: int) -> int:
    return max(len(os.sched_getaffinity(0)) // max(threads, 1), 1)


def _document(found: Calibration) -> dict[str, Any]:
    return {
        "cluster": cluster_document(found.cluster),
        "threads": found.threads,
        "product_errors": error_document(found.fitted.product_errors),
        "attention_errors": error_document(found.fitted.attention_errors),
        "all_reduces": [
            {
                "bytes": each.size_bytes,
                "measured_seconds": each.measured_seconds,
                "predicted_seconds": each.predicted_seconds,
            }
            for each in found.all_reduces
        ],
    }


def _print(found: Calibration) -> None:
    console = make_console()
    group = found.cluster.groups[0]
    console.print(f"{group.devices} x {found.fitted.device.name}", markup=False)
    console.print(calibration_table(found.cluster))
    for what, errors in (
        ("products", found.fitted.product_errors),
        ("attentions", found.fitted.attention_errors),
    ):
        about = error_document(errors)
        console.print(
            f"{about['count']} {what} are predicted {about['mean']:.1%} off on average, "
            f"{about['worst']:.1%} at worst",
            highlight=False,
        )
    for each in found.all_reduces:
        console.print(
            f"an all-reduce of {format_bytes(each.size_bytes)} takes "
            f"{format_seconds(each.measured_seconds)}, predicted "
            f"{format_seconds(each.predicted_seconds)}",
            highlight=False,
        )
