"""What is asked of planners, and what they answer where there is no plan."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import CheckError, InputError
from diaulos.models.graph import FixedMemory
from diaulos.planning.baselines.equal import equal
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.evaluation.costs import DETAILED, PIPER
from diaulos.planning.evaluation.pipelining import GPIPE
from diaulos.planning.exact import exact
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import Planner, PlanningProblem, SearchResult, answer
from tests.planning.problems import chain, option, problem

every = pytest.mark.parametrize("planner", [exact, equal, exhaustive])


def test_degrees_divide_the_microbatches() -> None:
    """Data-parallel degrees are the divisors of N up to the devices; the switch leaves only 1."""
    given = problem(chain([option()]), devices=7, microbatches=12)
    assert given.data_degrees == (1, 2, 3, 4, 6)
    assert replace(given, data_parallel=False).data_degrees == (1,)


def test_tensor_degrees_are_those_of_the_graph() -> None:
    """Degrees that some layer offers and the devices allow; the switch leaves only 1."""
    graph = chain([option(), option(tensor_parallel=2)], [option(tensor_parallel=8)])
    given = problem(graph, devices=4)
    assert given.tensor_degrees == (1, 2)
    assert replace(given, tensor_parallel=False).tensor_degrees == (1,)


def test_microbatches_must_be_positive() -> None:
    """Nothing can be planned for no microbatch."""
    with pytest.raises(InputError, match="microbatches is 0"):
        problem(chain([option()]), microbatches=0)


@every
def test_the_switches_hold(planner: Planner) -> None:
    """Without replicas, shards and recomputation a planner uses none."""
    layer = [
        option(seconds=4.0, fixed=2.0),
        option("again", seconds=1.0, recompute=True),
        option(tensor_parallel=2, seconds=1.0),
    ]
    given = problem(chain(layer, layer), devices=4, microbatches=4)
    without = replace(given, data_parallel=False, tensor_parallel=False, recompute=False)
    found = planner(without).plan
    assert found is not None
    assert {(s.data_parallel, s.tensor_parallel) for s in found.stages} == {(1, 1)}
    assert {name for s in found.stages for name in s.options.values()} == {"plain"}


@every
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            problem(chain([option()], [option(fixed=9.0)]), memory=8.0),
            (
                "layer 1 needs at least 9 B on each device, even alone in the last stage; "
                "the limit is 8 B, 1 bytes too little"
            ),
        ),
        (
            problem(chain([option(tensor_parallel=2)]), devices=4, tensor_parallel=False),
            "layer 0 has no option at the tensor-parallel degrees [] that are allowed",
        ),
        (
            problem(chain([option(recompute=True)]), recompute=False),
            "layer 0 has no option at the tensor-parallel degrees [1] that are allowed",
        ),
        (
            problem(chain(*[[option(fixed=5.0)]] * 3), devices=2, memory=8.0),
            (
                "no way to cut the 3 layers into stages on at most 2 devices keeps every stage "
                "within 8 B"
            ),
        ),
        (
            problem(
                chain([option()], [option(tensor_parallel=2), option(tensor_parallel=4)]),
                devices=2,
            ),
            "no way to cut the 2 layers",
        ),
    ],
)
def test_no_plan_is_an_answer_with_a_reason(
    planner: Planner, given: PlanningProblem, reason: str
) -> None:
    """Every planner says why there is no plan."""
    result = planner(given)
    assert result.plan is None
    assert result.reason is not None
    assert reason in result.reason


def test_nothing_wrong_leaves_a_planner() -> None:
    """A search that makes a wrong plan is found out."""
    wrong = Plan(
        stages=(Stage(layers=(0,), data_parallel=1, tensor_parallel=1, options={0: "plain"}),),
        microbatches=1,
    )
    found = SearchResult(plan=wrong, proven_optimal=False)
    with pytest.raises(CheckError, match="layer 1 stands in no stage"):
        answer(problem(chain([option()], [option()])), lambda _: found, planner="wrong")


LINK = Link(bandwidth_bytes_per_second=1.0)


def on_nodes(given: PlanningProblem) -> PlanningProblem:
    """The problem on two nodes of two small devices and one of a larger one."""
    groups = tuple(
        DeviceGroup(name=name, nodes=n, devices_per_node=d, memory_bytes=memory, link=LINK)
        for name, n, d, memory in (("small", 2, 2, 4.0), ("large", 1, 1, 8.0))
    )
    return replace(given, cluster=Cluster(groups=groups, link=LINK))


def test_shards_share_a_node() -> None:
    """Tensor-parallel degrees go up to the devices of a node, not of the cluster."""
    layer = [option(), option(tensor_parallel=2), option(tensor_parallel=4)]
    assert on_nodes(problem(chain(layer))).tensor_degrees == (1, 2)


def test_the_reason_counts_what_the_problem_counts() -> None:
    """Reserve, weight versions and optimizer shards are in the least that a layer needs."""
    memory = FixedMemory(parameters_bytes=5.0, optimizer_bytes=4.0, versions_bytes=6.0)
    heavy = on_nodes(problem(chain([replace(option(), fixed_memory=memory)]), microbatches=2))
    assert heavy.infeasibility().startswith("layer 0 needs at least 15 B on each device")
    flushed = replace(heavy, pipelining=GPIPE, costs=replace(PIPER, reserve_bytes=1.0))
    assert flushed.infeasibility().startswith("layer 0 needs at least 10 B on each device")
    assert "the limit is 8 B" in flushed.infeasibility()
    sharded = replace(flushed, shard_optimizer=True)
    assert sharded.infeasibility().startswith("no way to cut the 1 layers")  # 5 + 4/2 + 1 fit


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (on_nodes(problem(chain([option()]))), "the cluster has several nodes"),
        (replace(problem(chain([option()])), pipelining=GPIPE), "the schedule is gpipe"),
        (replace(problem(chain([option()])), costs=DETAILED), "the costs are not Piper's"),
        (replace(problem(chain([option()])), shard_optimizer=True), "the optimizer may be sharded"),
    ],
)
def test_what_only_some_planners_know(given: PlanningProblem, message: str) -> None:
    """The equal planner refuses what is not Piper's model, and says so."""
    with pytest.raises(InputError, match=message):
        equal(given)
