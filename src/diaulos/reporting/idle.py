"""Why a plan leaves devices idle."""

from diaulos.planning.problem import PlanningProblem, PlanningResult


def idle_sentence(problem: PlanningProblem, result: PlanningResult) -> str | None:
    """Why an answer does not use all devices, in one sentence; None where it does."""
    if result.plan is None:
        return None
    idle = problem.cluster.devices - result.plan.devices_used
    if idle == 0:
        return None
    subject = f"{idle} device stays idle" if idle == 1 else f"{idle} devices stay idle"
    return f"{subject}: {_reason(problem, result)}"


def _reason(problem: PlanningProblem, result: PlanningResult) -> str:
    if not result.proven_optimal:
        return f"no plan that uses more of them was found by the {result.planner} planner"
    assert result.plan is not None
    replicas = sum(stage.data_parallel for stage in result.plan.stages)
    if replicas == problem.microbatches:
        return (
            f"it is proven that no plan that uses more of them is faster; the replicas of all "
            f"stages already sum up to the {replicas} microbatches of a batch"
        )
    return (
        "it is proven that no plan that uses more of them is faster, with whole layers and "
        f"data-parallel degrees that divide the {problem.microbatches} microbatches"
    )
