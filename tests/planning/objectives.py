"""Small problems of each kind that planners are asked, for the tests."""

from dataclasses import replace

from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster
from diaulos.planning.evaluation.costs import PIPER
from diaulos.planning.evaluation.pipelining import PIPELININGS, STEADY
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import clusters, detailed_problems, problems


@st.composite
def on_nodes(draw: st.DrawFn, *, groups: int) -> PlanningProblem:
    """Problems of Piper's model without a flush on so many groups of nodes."""
    some = clusters().filter(lambda cluster: len(cluster.groups) == groups)
    return replace(draw(problems(most_layers=4)), cluster=draw(some))


@st.composite
def with_sharding(draw: st.DrawFn) -> PlanningProblem:
    """Problems of Piper's model in which the optimizer's state may be shared among replicas."""
    detailed = draw(detailed_problems())
    cluster = Cluster.flat(
        devices=draw(st.integers(2, 6)),
        memory_bytes=detailed.cluster.largest_memory_bytes,
        bandwidth_bytes_per_second=1.0,
    )
    return replace(detailed, shard_optimizer=True, pipelining=STEADY, costs=PIPER, cluster=cluster)


def flushed(name: str) -> st.SearchStrategy[PlanningProblem]:
    """Problems of Piper's model with a schedule."""
    return problems(most_layers=5).map(lambda p: replace(p, pipelining=PIPELININGS[name]))


OBJECTIVES: dict[str, st.SearchStrategy[PlanningProblem]] = {
    "steady": problems(),
    "gpipe": flushed("gpipe"),
    "1f1b": flushed("1f1b"),
    "zb-h1": flushed("zb-h1"),
    "nodes": on_nodes(groups=1),
    "groups": on_nodes(groups=2),
    "sharded": with_sharding(),
    "detailed": detailed_problems().map(lambda p: replace(p, pipelining=STEADY)),
    "everything": detailed_problems(),
}
