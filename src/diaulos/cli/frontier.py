"""`diaulos frontier`: the best time against devices, or against their memory."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from diaulos.cli.output import make_console, print_json
from diaulos.cli.problem import UnsizedFlags
from diaulos.cli.ranges import is_range, parse_count, parse_range
from diaulos.clusters.cluster import Cluster
from diaulos.documents import write_text
from diaulos.errors import InfeasibleError, InputError
from diaulos.models.files import GraphFile
from diaulos.planning.explanation.comparison import ABLATIONS
from diaulos.planning.explanation.frontier import FrontierPoint, device_clusters, memory_clusters
from diaulos.planning.explanation.frontier import frontier as plan_frontier
from diaulos.planning.planners import PLANNERS
from diaulos.planning.problem import PlanningProblem
from diaulos.reporting.frontier import frontier_documents, frontier_svg, frontier_table
from diaulos.units import parse_bytes


def frontier(
    graph: Path,
    *,
    devices: str | None = None,
    memory: str | None = None,
    flags: UnsizedFlags | None = None,
    planner: Literal["exact", "equal", "pipedream"] = "exact",
    ablations: Annotated[bool, Parameter(negative=())] = False,
    svg: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Plan for a range of devices, or of memory, each value once.

    Parameters
    ----------
    graph
        The layer graph: the project's JSON, Piper's, or PipeDream's text.
    devices
        How many devices there are: a range such as 8..2048 (doubling), 8..2048:1 (every number)
        or 8..2048:x1.5, or one number where memory is a range.
    memory
        Of each device: a range such as 1GiB..80GiB or 1GiB..80GiB:4GiB, or one size where devices
        is a range.
    flags
        What to plan for.
    planner
        exact (proven optimal), equal (equal stages) or pipedream (as PipeDream plans).
    ablations
        Also without data parallelism, without tensor parallelism, and without recomputation.
    svg
        Where to draw the frontier.
    as_json
        Print one JSON object instead of the table.
    """
    over_memory = _is_over_memory(devices, memory)
    given = flags or UnsizedFlags()
    sized = (given, given.read(graph))
    problem, clusters = (_over_memory if over_memory else _over_devices)(*sized, devices, memory)
    series = _series(problem, clusters, planner, ablations=ablations)
    if as_json:
        over = "memory" if over_memory else "devices"
        document = {"over": over, "microbatches": problem.microbatches}
        print_json({**document, "series": frontier_documents(series)})
    else:
        make_console().print(frontier_table(series, over_memory=over_memory))
    if all(point.result.plan is None for points in series.values() for point in points):
        raise InfeasibleError("no plan anywhere on the range; diaulos plan says what it would take")
    if svg is not None:
        title = f"{graph.stem}: batches of {problem.microbatches} microbatches"
        write_text(svg, frontier_svg(series, over_memory=over_memory, title=title))


def _series(
    problem: PlanningProblem, clusters: tuple[Cluster, ...], planner: str, *, ablations: bool
) -> Mapping[str, tuple[FrontierPoint, ...]]:
    """The frontier of a planner, and those of its ablations where they are asked for."""
    first, *others = (replace(each, planner=PLANNERS[planner]) for each in ABLATIONS)
    contenders = [replace(first, name=planner), *(others if ablations else [])]
    return {
        each.name: plan_frontier(each.problem(problem), clusters, each.planner)
        for each in contenders
    }


def _is_over_memory(devices: str | None, memory: str | None) -> bool:
    if is_range(devices) == is_range(memory):
        given = "both ranges" if is_range(memory) else "no range"
        raise InputError(
            f"--devices and --memory are {given}",
            "a frontier runs over one of them",
            "for example --devices 8..2048 --memory 8GiB",
        )
    return is_range(memory)


def _over_devices(
    flags: UnsizedFlags, file: GraphFile, devices: str | None, memory: str | None
) -> tuple[PlanningProblem, tuple[Cluster, ...]]:
    """The problem and the clusters of a range of devices."""
    counts = [int(count) for count in parse_range(devices or "", parse_count)]
    memory_bytes = None if memory is None else parse_bytes(memory)
    problem = flags.sized(file, devices=counts[-1], memory_bytes=memory_bytes)
    return problem, device_clusters(problem.cluster, counts)


def _over_memory(
    flags: UnsizedFlags, file: GraphFile, devices: str | None, memory: str | None
) -> tuple[PlanningProblem, tuple[Cluster, ...]]:
    """The problem and the clusters of a range of memory."""
    sizes = parse_range(memory or "", parse_bytes)
    count = None if devices is None else parse_count(devices)
    problem = flags.sized(file, devices=count, memory_bytes=sizes[-1])
    return problem, memory_clusters(problem.cluster, sizes)
