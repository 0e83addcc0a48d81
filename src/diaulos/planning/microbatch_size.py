"""Which microbatch size to take, where a model was priced with several.

Larger microbatches run more efficiently and need more memory; how many make up a batch follows
from the size.
"""

from collections.abc import Mapping
from dataclasses import replace

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.planning.exact import exact
from diaulos.planning.problem import Planner, PlanningProblem, PlanningResult


def fastest_microbatch_size(
    problem: PlanningProblem,
    graphs: Mapping[int, LayerGraph],
    *,
    batch_size: int,
    planner: Planner = exact,
) -> tuple[int, PlanningResult]:
    """The size with the least time of a batch of so many samples, and its plan.

    `graphs` are the model as it was priced with microbatches of each size. Sizes that do not
    divide the batch are left out, and it is an `InputError` if none does. Among equally fast ones
    the smaller. The problem's own graph and number of microbatches do not count.
    """
    sizes = [size for size in sorted(graphs) if size > 0 and batch_size % size == 0]
    if not sizes:
        raise InputError(
            f"no microbatch size of {sorted(graphs)} divides the batch of {batch_size} samples",
            "a batch is made up of whole microbatches",
        )
    answers = [
        (size, planner(replace(problem, graph=graphs[size], microbatches=batch_size // size)))
        for size in sizes
    ]
    return min(answers, key=lambda answer: _batch_seconds(answer[1]))


def _batch_seconds(result: PlanningResult) -> float:
    return float("inf") if result.evaluation is None else result.evaluation.batch_seconds
