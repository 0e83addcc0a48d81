"""`diaulos plan`: find the fastest plan for a layer graph on a cluster."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from diaulos.cli.output import make_console, print_json
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.files import read_cluster
from diaulos.errors import InfeasibleError, InputError
from diaulos.models.files import GraphFile, read_graph
from diaulos.planning.files import stage_document, write_plan
from diaulos.planning.planners import PLANNERS
from diaulos.planning.problem import PlanningProblem, PlanningResult
from diaulos.reporting.tables import plan_table
from diaulos.units import format_seconds, parse_bandwidth, parse_bytes


def plan(
    graph: Path,
    *,
    devices: int | None = None,
    memory: str | None = None,
    bandwidth: str | None = None,
    microbatches: int | None = None,
    cluster: Path | None = None,
    planner: Literal["exact", "equal", "exhaustive"] = "exact",
    data_parallel: bool = True,
    tensor_parallel: bool = True,
    recompute: bool = True,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Find the plan with the least time per sample.

    What is not given is taken from the graph's file, where it is a Piper file.

    Parameters
    ----------
    graph
        The layer graph: Piper's JSON or the project's own.
    devices
        How many devices there are.
    memory
        Of each device, such as 8GiB or 80GB.
    bandwidth
        Of each link, such as 25GiB/s.
    microbatches
        In one batch, over all replicas.
    cluster
        A cluster file, TOML; what is given besides overrides it.
    planner
        exact (proven optimal), equal (equal stages, as PipeDream-2BW plans) or exhaustive (tries
        every plan; small graphs only).
    data_parallel
        Whether stages may have replicas.
    tensor_parallel
        Whether layers may be split over devices.
    recompute
        Whether activations may be recomputed.
    output
        Where to write the plan, JSON.
    as_json
        Print one JSON object instead of the table.
    """
    file = read_graph(graph)
    problem = PlanningProblem(
        graph=file.graph,
        cluster=_cluster(file, cluster, devices, memory, bandwidth),
        microbatches=_microbatches(file, microbatches),
        data_parallel=data_parallel,
        tensor_parallel=tensor_parallel,
        recompute=recompute,
    )
    result = PLANNERS[planner](problem)
    if as_json:
        print_json(result_document(problem, result))
    if result.plan is None or result.evaluation is None:
        raise InfeasibleError(f"no plan: {result.reason}")
    if output is not None:
        write_plan(
            output,
            result.plan,
            result.evaluation,
            graph_path=graph,
            cluster=problem.cluster,
            made_by=_made_by(problem, result),
        )
    if not as_json:
        _print(problem, result)


def result_document(problem: PlanningProblem, result: PlanningResult) -> dict[str, Any]:
    """The JSON of a planner's answer."""
    document: dict[str, Any] = {
        "feasible": result.plan is not None,
        "planner": result.planner,
        "microbatches": problem.microbatches,
        "proven_optimal": result.proven_optimal,
        "search_seconds": result.search_seconds,
    }
    if result.plan is None or result.evaluation is None:
        return {**document, "reason": result.reason}
    return {
        **document,
        "time_per_sample_seconds": result.evaluation.time_per_sample_seconds,
        "devices_used": result.plan.devices_used,
        "stages": [
            stage_document(stage, price)
            for stage, price in zip(result.plan.stages, result.evaluation.stages, strict=True)
        ],
    }


def _cluster(
    file: GraphFile,
    path: Path | None,
    devices: int | None,
    memory: str | None,
    bandwidth: str | None,
) -> Cluster:
    """The cluster of the flags, then of the cluster file, then of the graph's file."""
    base = read_cluster(path) if path is not None else _cluster_of_file(file)
    stated = {
        "devices": devices,
        "memory_bytes": None if memory is None else parse_bytes(memory),
        "bandwidth_bytes_per_second": None if bandwidth is None else parse_bandwidth(bandwidth),
    }
    given: dict[str, Any] = {key: value for key, value in stated.items() if value is not None}
    if base is not None:
        return base.with_flat(**given)
    missing = [key.split("_")[0] for key, value in stated.items() if value is None]
    if missing:
        flags = ", ".join(f"--{name}" for name in missing)
        raise InputError(
            f"{flags} not given",
            "only Piper's files state them",
            "give them, or a cluster file with --cluster",
        )
    return Cluster.flat(**given)


def _cluster_of_file(file: GraphFile) -> Cluster | None:
    if file.piper is None:
        return None
    return Cluster.flat(
        devices=file.piper.max_devices,
        memory_bytes=file.piper.max_memory_per_device_bytes,
        bandwidth_bytes_per_second=file.piper.bandwidth_bytes_per_second,
    )


def _microbatches(file: GraphFile, microbatches: int | None) -> int:
    if microbatches is not None:
        return microbatches
    if file.piper is None:
        raise InputError("--microbatches not given", "only Piper's files state it")
    return file.piper.microbatches


def _made_by(problem: PlanningProblem, result: PlanningResult) -> dict[str, str]:
    switches = ("data_parallel", "tensor_parallel", "recompute")
    off = [name for name in switches if not getattr(problem, name)]
    without = {"without": ", ".join(off)} if off else {}
    proven = "true" if result.proven_optimal else "false"
    return {"planner": result.planner, "proven_optimal": proven, **without}


def _print(problem: PlanningProblem, result: PlanningResult) -> None:
    assert result.plan is not None
    assert result.evaluation is not None
    console = make_console()
    console.print(plan_table(problem.graph, result.plan, result.evaluation, problem.cluster))
    proof = "proven optimal" if result.proven_optimal else "not proven optimal"
    seconds = format_seconds(result.evaluation.time_per_sample_seconds)
    console.print(
        f"{seconds} per sample, {result.plan.devices_used} of {problem.cluster.devices} devices, "
        f"{problem.microbatches} microbatches; {proof}, found by the {result.planner} planner in "
        f"{format_seconds(result.search_seconds)}"
    )
