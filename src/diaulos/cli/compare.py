"""`diaulos compare`: the exact planner, its ablations and two published planners side by side."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from diaulos.cli.output import make_console, print_json
from diaulos.cli.problem import ProblemFlags
from diaulos.errors import InfeasibleError
from diaulos.planning.explanation.comparison import compare as compare_contenders
from diaulos.reporting.comparison import comparison_documents, comparison_table, reasons


def compare(
    graph: Path,
    *,
    flags: ProblemFlags | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Plan with every planner, and exactly without each means of parallelism or recomputation.

    Parameters
    ----------
    graph
        The layer graph: the project's JSON, Piper's, or PipeDream's text.
    flags
        What to plan for.
    as_json
        Print one JSON object instead of the table.
    """
    given = flags or ProblemFlags()
    problem = given.problem(given.unsized.read(graph))
    standings = compare_contenders(problem)
    if as_json:
        print_json(
            {
                "microbatches": problem.microbatches,
                "devices": problem.cluster.devices,
                "planners": comparison_documents(standings),
            }
        )
    else:
        console = make_console()
        console.print(comparison_table(standings))
        for reason in reasons(standings):
            console.print(reason, soft_wrap=True, markup=False)
    if all(standing.ratio is None for standing in standings):
        raise InfeasibleError("no planner finds a plan; diaulos plan says what it would take")
