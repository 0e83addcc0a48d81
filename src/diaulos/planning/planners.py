"""Planning in one call, and the planners by name."""

from collections.abc import Mapping
from types import MappingProxyType

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InfeasibleError
from diaulos.models.graph import LayerGraph
from diaulos.planning.baselines.equal import equal
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.baselines.pipedream import pipedream
from diaulos.planning.evaluation.costs import CostModel, usual_costs
from diaulos.planning.evaluation.pipelining import STEADY, Pipelining
from diaulos.planning.exact import exact
from diaulos.planning.plan import Plan
from diaulos.planning.problem import Planner, PlanningProblem

PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {"exact": exact, "equal": equal, "pipedream": pipedream, "exhaustive": exhaustive}
)
"""The planners by the names that flags use."""


def plan(
    graph: LayerGraph,
    cluster: Cluster,
    *,
    microbatches: int,
    planner: Planner = exact,
    costs: CostModel | None = None,
    pipelining: Pipelining = STEADY,
) -> Plan:
    """The plan with the least time of a batch of `microbatches`.

    `costs` are Piper's on a cluster of one node and the detailed ones on others, unless given.
    Raises `InfeasibleError` with the reason where no plan fits the cluster. For proofs, search
    times and ablations, give a `PlanningProblem` to a planner.
    """
    problem = PlanningProblem(
        graph=graph,
        cluster=cluster,
        microbatches=microbatches,
        costs=usual_costs(cluster) if costs is None else costs,
        pipelining=pipelining,
    )
    result = planner(problem)
    if result.plan is None:
        raise InfeasibleError(f"no plan: {result.reason}")
    return result.plan
