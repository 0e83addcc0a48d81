"""`diaulos explain`: why a plan is as fast as it is, and what would change it."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from diaulos.cli.output import make_console, print_json
from diaulos.clusters.expression import find_cluster
from diaulos.planning.explanation.explain import explain as explain_plan
from diaulos.planning.explanation.what_if import what_if
from diaulos.planning.files import read_plan
from diaulos.reporting.explain import (
    explanation_document,
    gap_table,
    stages_table,
    what_if_document,
    what_if_sentences,
)
from diaulos.reporting.tables import plan_sentence
from diaulos.units import parse_bytes


def explain(
    plan: Path,
    *,
    graph: Path | None = None,
    cluster: str | Path | None = None,
    more_memory: str = "10GiB",
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Say what binds each stage of a plan, where its time goes, and what would make it faster.

    Parameters
    ----------
    plan
        The plan file, edited by hand or not.
    graph
        Its layer graph, where it is not at the place that the plan names.
    cluster
        Another cluster than the one that the plan was made for: a TOML file, or 4x8xH100-80GB.
    more_memory
        How much more memory on each device to plan again for.
    as_json
        Print one JSON object instead of the tables.
    """
    stored = read_plan(
        plan, graph_path=graph, cluster=None if cluster is None else find_cluster(cluster)
    ).checked()
    explanation = explain_plan(
        stored.graph, stored.plan, stored.cluster, stored.costs, stored.pipelining
    )
    prices, more_bytes = explanation.evaluation, parse_bytes(more_memory)
    changes = what_if(stored.problem, prices.batch_seconds, more_memory_bytes=more_bytes)
    if as_json:
        document = {**explanation_document(explanation), "what_if": what_if_document(changes)}
        print_json(document)
        return
    console = make_console()
    console.print(plan_sentence(stored.plan, prices, stored.cluster), "", sep="\n")
    console.print(stages_table(stored.graph, stored.plan, explanation), "", sep="\n")
    console.print(gap_table(explanation.gap), "", sep="\n")
    for sentence in what_if_sentences(
        stored.problem, changes, prices.batch_seconds, more_memory_bytes=more_bytes
    ):
        console.print(sentence)
