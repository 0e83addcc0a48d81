"""`diaulos check`: check and price a plan file again."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from diaulos.cli.output import make_console, note, print_json
from diaulos.clusters.expression import find_cluster
from diaulos.planning.files import StoredPlan, read_plan, stage_documents
from diaulos.reporting.tables import plan_sentence, plan_table
from diaulos.units import format_seconds


def check(
    plan: Path,
    *,
    graph: Path | None = None,
    cluster: str | Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Check a plan file against its graph and cluster, and price it from the definition.

    Parameters
    ----------
    plan
        The plan file, edited by hand or not.
    graph
        Its layer graph, where it is not at the place that the plan names.
    cluster
        Another cluster than the one that the plan was made for: a TOML file, or 4x8xH100-80GB.
    as_json
        Print one JSON object instead of the table.
    """
    stored = read_plan(
        plan, graph_path=graph, cluster=None if cluster is None else find_cluster(cluster)
    )
    if as_json:
        print_json(_document(stored))
    stored.checked()
    if not as_json:
        _print(stored)


def _document(stored: StoredPlan) -> dict[str, Any]:
    if stored.violations:
        return {"valid": False, "violations": list(stored.violations)}
    prices = stored.evaluation
    return {
        "valid": True,
        "graph_is_unchanged": stored.graph_is_unchanged,
        "states_its_time": stored.states_its_time,
        "time_per_sample_seconds": prices.time_per_sample_seconds,
        "batch_seconds": prices.batch_seconds,
        "devices_used": prices.devices_used,
        "stages": stage_documents(stored.plan, prices, stored.cluster),
    }


def _print(stored: StoredPlan) -> None:
    console = make_console()
    console.print(plan_table(stored.graph, stored.plan, stored.evaluation, stored.cluster))
    console.print(f"valid: {plan_sentence(stored.plan, stored.evaluation, stored.cluster)}")
    if not stored.graph_is_unchanged:
        note(
            f"note: {stored.graph_path} has changed since the plan was made; the prices are those "
            "of the graph as it is, and another plan may be faster now"
        )
    elif stored.stated_seconds is not None and not stored.states_its_time:
        note(
            f"note: the file states {format_seconds(stored.stated_seconds)} per sample; the plan "
            "was edited, or its cluster was"
        )
