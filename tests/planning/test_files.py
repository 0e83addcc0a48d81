"""Plan files are read back, priced anew, and never trusted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import CheckError, InputError
from diaulos.models.files import write_graph
from diaulos.models.graph import LayerGraph
from diaulos.planning.evaluation.costs import DETAILED, PIPER, Collective, CostModel
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B, STEADY
from diaulos.planning.exact import exact
from diaulos.planning.files import read_plan, write_plan
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problem

LAYER = [option(seconds=2.0, activations=1.0), option("lean", seconds=3.0, recompute=True)]


def two_stages(graph: LayerGraph) -> PlanningProblem:
    return problem(graph, devices=2, memory=4.0, microbatches=2, data_parallel=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A plan of two stages with its graph, as the exact planner makes it."""
    given = two_stages(chain(*[LAYER] * 4))
    write_graph(tmp_path / "graph.json", given.graph)
    result = exact(given)
    assert result.plan is not None
    assert result.evaluation is not None
    write_plan(
        tmp_path / "plan.json",
        result.plan,
        result.evaluation,
        graph_path=tmp_path / "graph.json",
        cluster=given.cluster,
        made_by={"planner": "exact"},
    )
    return tmp_path / "plan.json"


def edit(path: Path, *place: str | int, value: object) -> None:
    """Change one value of a JSON file by hand."""
    document: Any = json.loads(path.read_text())
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_text(json.dumps(document))


def test_a_plan_is_read_back(path: Path) -> None:
    """Plan, cluster, provenance and price are those that were written."""
    stored = read_plan(path).checked()
    assert stored.plan == exact(two_stages(stored.graph)).plan
    assert stored.cluster == two_stages(stored.graph).cluster
    assert stored.graph_is_unchanged
    assert stored.made_by["planner"] == "exact"
    assert set(stored.made_by) == {"planner", "version"}
    document = json.loads(path.read_text())
    assert document["format"] == "diaulos.plan/1"
    price = stored.evaluation.time_per_sample_seconds
    assert document["time_per_sample_seconds"] == price
    assert document["graph"]["path"] == "graph.json"


LINK = Link(bandwidth_bytes_per_second=4.0, latency_seconds=0.5, duplex=True)
NODES = Cluster(
    groups=(
        DeviceGroup(name="old", nodes=1, devices_per_node=2, memory_bytes=9.0, link=LINK),
        DeviceGroup(
            name="new", nodes=2, devices_per_node=2, memory_bytes=9.0, link=LINK, speed=2.0
        ),
    ),
    link=Link(bandwidth_bytes_per_second=1.0),
    name="mixed",
)


def placed_plan(folder: Path, costs: CostModel) -> Path:
    """Two stages on three nodes, for 1F1B, priced by a cost model."""
    graph = chain(*[LAYER] * 2, bytes_between=0.5)
    write_graph(folder / "graph.json", graph)
    stages = (
        Stage(layers=(0,), data_parallel=1, tensor_parallel=1, options={0: "lean"}, first_device=1),
        Stage(
            layers=(1,),
            data_parallel=4,
            tensor_parallel=1,
            options={1: "plain"},
            sharded_optimizer=True,
            first_device=2,
        ),
    )
    plan = Plan(stages=stages, microbatches=8)
    write_plan(
        folder / "plan.json",
        plan,
        evaluate(graph, plan, NODES, costs, ONE_F_ONE_B),
        graph_path=folder / "graph.json",
        cluster=NODES,
        made_by={},
        costs=costs,
    )
    return folder / "plan.json"


@pytest.mark.parametrize("costs", [PIPER, DETAILED, CostModel(collective=Collective.TREE)])
def test_places_costs_and_schedule_are_read_back(tmp_path: Path, costs: CostModel) -> None:
    """A plan on nodes comes back with all that prices it, and has the same price."""
    stored = read_plan(placed_plan(tmp_path, costs)).checked()
    document = json.loads(stored.path.read_text())
    assert (stored.cluster, stored.costs, stored.pipelining) == (NODES, costs, ONE_F_ONE_B)
    assert [stage.first_device for stage in stored.plan.stages] == [1, 2]
    assert [stage.sharded_optimizer for stage in stored.plan.stages] == [False, True]
    assert [stage["devices"] for stage in document["stages"]] == [["node 0: 1"], ["nodes 1-2: 0-1"]]
    assert stored.evaluation.batch_seconds == document["batch_seconds"]


def test_a_cost_that_is_not_stated_is_piper_s(tmp_path: Path) -> None:
    """A file edited by hand may say only what differs."""
    path = placed_plan(tmp_path, DETAILED)
    edit(path, "costs", value={"reserve_bytes": 2})
    assert read_plan(path).costs == replace(PIPER, reserve_bytes=2.0)


def test_plans_of_piper_s_model_say_no_more_than_they_did(path: Path) -> None:
    """What is as in older files is not written, and older files are read."""
    document = json.loads(path.read_text())
    assert not {"costs", "pipelining"} & document.keys()
    stage = document["stages"][0]
    assert not {"sharded_optimizer", "first_device", "devices"} & stage.keys()
    del document["batch_seconds"]
    path.write_text(json.dumps(document))
    stored = read_plan(path).checked()
    assert (stored.costs, stored.pipelining) == (PIPER, STEADY)


def test_written_prices_are_not_trusted(path: Path) -> None:
    """A plan edited by hand has the price of what it says, not the one that stands beside."""
    edit(path, "time_per_sample_seconds", value=0.001)
    edit(path, "stages", 0, "time_per_sample_seconds", value=0.001)
    before = read_plan(path).evaluation.time_per_sample_seconds
    assert before == 4.0
    edit(path, "stages", 1, "options", "3", value="lean")
    assert read_plan(path).evaluation.time_per_sample_seconds == 5.0


def test_broken_rules_are_all_told(path: Path) -> None:
    """The error of a check names the file and every broken rule."""
    edit(path, "stages", 0, "data_parallel", value=3)
    edit(path, "stages", 1, "options", "3", value="fat")
    with pytest.raises(CheckError) as caught:
        read_plan(path).checked()
    text = str(caught.value)
    assert "the plan breaks 4 rules" in text
    assert str(path) in text
    assert "degree 3, which does not divide the 2 microbatches" in text
    assert "no option 'fat'" in text


def test_another_graph_or_cluster_may_be_given(path: Path, tmp_path: Path) -> None:
    """The plan is priced on them, and it is known that the graph is another."""
    slower = [replace(o, seconds=2 * o.seconds) for o in LAYER]
    write_graph(tmp_path / "slower.json", chain(*[slower] * 4))
    stored = read_plan(path, graph_path=tmp_path / "slower.json")
    assert stored.evaluation.time_per_sample_seconds == 8.0
    assert not stored.graph_is_unchanged
    tiny = Cluster.flat(devices=1, memory_bytes=4.0, bandwidth_bytes_per_second=1.0)
    assert (
        read_plan(path, cluster=tiny)
        .violations[0]
        .startswith("the stages take 2 devices, the cluster has 1")
    )


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("format",), "diaulos.plan/9", "$.format is 'diaulos.plan/9'"),
        (("stages",), [], "$.stages is empty"),
        (("stages", 1, "data_parallel"), 0, "$.stages[1].data_parallel is 0"),
        (("stages", 1, "layers"), [2, 2], "$.stages[1]: a stage names a layer twice"),
        (("stages", 0, "layers", 1), "1", "$.stages[0].layers[1] is a string"),
        (("stages", 0, "options"), {"x": "lean"}, "$.stages[0].options.x has the key 'x'"),
        (("stages", 0, "options"), {"0": "lean"}, "layers and options of a stage differ in [1]"),
        (("microbatches",), 1.5, "$.microbatches is a number (1.5)"),
        (("cluster", "memory_bytes"), -1, "$.cluster.memory_bytes is -1"),
        (("graph", "path"), "nowhere.json", "give its place with --graph"),
        (("surprise",), 1, "$ has the unknown key 'surprise'"),
        (("pipelining",), "3f3b", "$.pipelining is '3f3b'; it must be one of 2bw, gpipe, 1f1b"),
        (("costs",), {"collective": "star"}, "$.costs.collective is 'star'; it must be one of"),
        (("costs",), {"colour": 1}, "$.costs has the unknown key 'colour'"),
        (("stages", 0, "first_device"), 0, "stage 1 does not state its first_device"),
        (("stages", 0, "sharded_optimizer"), 1, "$.stages[0].sharded_optimizer is a number (1)"),
        (("cluster",), {"name": "x", "groups": []}, "$.cluster lacks the key 'link'"),
    ],
)
def test_errors_name_the_place(
    path: Path, place: tuple[str | int, ...], value: object, message: str
) -> None:
    """What is wrong with a plan file is told with its path in the file."""
    edit(path, *place, value=value)
    with pytest.raises(InputError) as caught:
        read_plan(path)
    assert message in str(caught.value)
