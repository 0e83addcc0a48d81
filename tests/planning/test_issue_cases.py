"""What users of other software reported, as problems: splits, empty stages, places, validity.

Each test names its row of the reference's `issue_cases.csv` and asserts that row's last column.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup
from diaulos.errors import InputError
from diaulos.models.files import write_graph
from diaulos.models.graph import LayerGraph
from diaulos.planning.baselines.equal import equal_splits
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.evaluation.places import placed
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.exact import exact
from diaulos.planning.files import read_plan, write_plan
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem
from diaulos.reporting.idle import idle_sentence
from tests.planning.problems import chain, option, problem

STAGES_ALONE = {"data_parallel": False, "microbatches": 64}
"""One replica of each stage, so that devices are stages."""


def units(*weights: float, shards: int = 1) -> LayerGraph:
    """A chain of layers that take so many seconds each."""
    return chain(*[[option(seconds=weight, tensor_parallel=shards)] for weight in weights])


def sizes(given: PlanningProblem) -> list[int]:
    """Layers on each stage of the exact planner's answer, all of them checked."""
    result = exact(given)
    assert result.plan is not None
    assert result.proven_optimal
    assert violations(given.graph, result.plan, given.cluster) == ()
    return [len(stage.layers) for stage in result.plan.stages]


def by_hand(*counts: int, microbatches: int = 64) -> Plan:
    """A plan of consecutive layers with so many on each stage."""
    starts = [sum(counts[:number]) for number in range(len(counts))]
    stages = [
        Stage(
            layers=tuple(range(start, start + count)),
            data_parallel=1,
            tensor_parallel=1,
            options=dict.fromkeys(range(start, start + count), "plain"),
        )
        for start, count in zip(starts, counts, strict=True)
    ]
    return Plan(stages=tuple(stages), microbatches=microbatches)


def test_u1_seven_layers_on_two_stages() -> None:
    """U1: no divisibility is asked for; the split is 3 and 4, in either order."""
    assert sorted(sizes(problem(units(*[1.0] * 7), devices=2, **STAGES_ALONE))) == [3, 4]


def test_u2_thirty_layers_on_four_stages() -> None:
    """U2: all 30 layers are placed, at most 8 on a stage; a plan with 28 of them is refused."""
    graph = units(*[1.0] * 30)
    given = problem(graph, devices=4, **STAGES_ALONE)
    found = sizes(given)
    assert (sum(found), max(found)) == (30, 8)

    lost = violations(graph, by_hand(7, 7, 7, 7), given.cluster)
    assert [sentence.split(";")[0] for sentence in lost] == [
        "layer 28 stands in no stage",
        "layer 29 stands in no stage",
    ]


def test_u4_no_stage_is_empty() -> None:
    """U4: 42 layers of degree 4 on up to 16 stages: at most 3 on a stage, and none without."""
    found = sizes(problem(units(*[1.0] * 42, shards=4), devices=64, **STAGES_ALONE))
    assert sum(found) == 42
    assert (min(found), max(found)) == (3, 3)
    # 14 stages are as fast as 16, in which some would have two layers.
    assert len(found) == 14


def test_u5_five_layers_on_four_stages() -> None:
    """U5: an empty stage cannot even be said; 2 1 1 1 is no slower than the split with one.

    The planner leaves the fourth device out, as 2 2 1 takes no longer, and says so; equal stages
    on all four devices are 1 1 1 2.
    """
    graph = units(*[1.0] * 5)
    given = problem(graph, devices=4, **STAGES_ALONE)
    result = exact(given)
    assert result.plan is not None
    assert result.evaluation is not None
    assert sorted(sizes(given)) == [1, 2, 2]
    assert str(idle_sentence(given, result)).startswith("1 device stays idle: it is proven")

    full = evaluate(graph, by_hand(2, 1, 1, 1), given.cluster)
    assert full.time_per_sample_seconds == result.evaluation.time_per_sample_seconds == 2.0
    assert [[len(part) for part in split] for split in equal_splits(graph, 4)][3] == [1, 1, 1, 2]
    with pytest.raises(InputError, match="every stage holds at least one layer"):
        by_hand(2, 2, 1, 0)


def test_u8_layers_that_do_not_divide() -> None:
    """U8: 46 layers of degree 8 on four stages get an uneven layout of 11 and 12."""
    found = sizes(problem(units(*[1.0] * 46, shards=8), devices=32, **STAGES_ALONE))
    assert (len(found), sum(found), max(found)) == (4, 46, 12)


def test_u10_embedding_and_head_count() -> None:
    """U10: embedding, 6 layers and head of one unit each: 1 2 2 1 layers beside the ends."""
    found = sizes(problem(units(*[1.0] * 8), devices=4, **STAGES_ALONE))
    assert [found[0] - 1, *found[1:-1], found[-1] - 1] == [1, 2, 2, 1]


def test_u11_a_split_by_hand(tmp_path: Path) -> None:
    """U11: 7 8 9 8 is written, read, checked and priced like every plan."""
    graph = units(*[1.0] * 32)
    given = problem(graph, devices=4, **STAGES_ALONE)
    manual = by_hand(7, 8, 9, 8)
    write_graph(tmp_path / "graph.json", graph)
    write_plan(
        tmp_path / "plan.json",
        manual,
        evaluate(graph, manual, given.cluster),
        graph_path=tmp_path / "graph.json",
        cluster=given.cluster,
        made_by={"planner": "hand"},
    )

    stored = read_plan(tmp_path / "plan.json").checked()
    assert stored.plan == manual
    assert stored.evaluation.time_per_sample_seconds == 9.0
    assert sizes(given) == [8, 8, 8, 8]


def test_c5_stages_follow_the_nodes() -> None:
    """C5: 32 stages of one device on four nodes of eight cross nodes exactly three times."""
    link = problem(units(1.0)).cluster.link
    group = DeviceGroup(
        name="v100", nodes=4, devices_per_node=8, memory_bytes=1e9, link=replace(link)
    )
    nodes = Cluster(groups=(group,), link=replace(link, bandwidth_bytes_per_second=0.1))
    graph = chain(*[[option(seconds=1.0)]] * 32, bytes_between=1e-3)
    given = replace(problem(graph, **STAGES_ALONE), cluster=nodes)
    result = exact(given)
    assert result.plan is not None

    on_nodes = [nodes.node_of(first) for first in placed(result.plan, nodes)]
    assert len(on_nodes) == 32
    assert sum(a != b for a, b in pairwise(on_nodes)) == 3


def test_c6_idle_devices_are_explained() -> None:
    """C6: a plan uses all devices or says why not, in one sentence."""
    given = problem(units(1.0, 1.0), devices=3, **STAGES_ALONE)
    result = exact(given)
    assert result.plan is not None
    assert result.plan.devices_used == 2
    assert str(idle_sentence(given, result)).startswith("1 device stays idle: it is proven")


def test_c6_the_fill_of_the_pipeline_counts() -> None:
    """C6: with a flush a batch of m microbatches takes the fill and (m - 1) times the slowest."""
    weights = (1.0, 3.0, 2.0)
    graph = units(*weights)
    cluster = problem(graph, devices=3).cluster
    for microbatches in (1, 4, 64):
        one_each = by_hand(1, 1, 1, microbatches=microbatches)
        priced = evaluate(graph, one_each, cluster, pipelining=ONE_F_ONE_B)
        assert priced.batch_seconds == sum(weights) + (microbatches - 1) * max(weights)


def test_c8_a_heavy_vocabulary_has_its_own_stages() -> None:
    """C8: weights 2 1 1 1 1 2 on four stages: embedding and head alone, the layers in pairs."""
    assert sizes(problem(units(2, 1, 1, 1, 1, 2), devices=4, **STAGES_ALONE)) == [1, 2, 2, 1]
