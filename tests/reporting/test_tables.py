"""The table of a plan, as a person reads it."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.models.graph import Edge, Layer, LayerGraph
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import GPIPE
from diaulos.planning.plan import Plan, Stage
from diaulos.reporting.tables import describe_layers, describe_options, plan_sentence, plan_table
from tests.planning.problems import chain, option, problem

OPTIONS = [
    option(seconds=0.002, activations=2.0**20),
    option("lean", seconds=0.003, activations=2.0**18),
]


def stage(*layers: int, d: int = 1, lean: tuple[int, ...] = ()) -> Stage:
    names = {layer: "lean" if layer in lean else "plain" for layer in layers}
    return Stage(layers=layers, data_parallel=d, tensor_parallel=1, options=names)


def printed(plan: Plan, **of_console: bool) -> str:
    given = problem(chain(*[OPTIONS] * 4), devices=3, memory=4 * 2.0**20, microbatches=4)
    out = StringIO()
    prices = evaluate(given.graph, plan, given.cluster)
    Console(file=out, width=120, **of_console).print(
        plan_table(given.graph, plan, prices, given.cluster)
    )
    return out.getvalue()


def test_each_stage_is_a_row() -> None:
    """All that decides about a stage stands in its row, with units."""
    plan = Plan(stages=(stage(0, 1, lean=(1,), d=2), stage(2, 3)), microbatches=4)
    heading, *rows = [" ".join(line.split()) for line in printed(plan).splitlines()]
    assert heading == "stage layers d t options in flight memory of limit time of bottleneck"
    assert rows == [
        "0 0-1 2 1 1 plain, 1 lean 2 2.5 MiB 62.5% 2.5 ms 62.5%",
        "1 2-3 1 1 plain 1 2 MiB 50.0% 4 ms 100.0%",
    ]


def test_no_colour_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe, and on a terminal with NO_COLOR, the table is plain text."""
    plan = Plan(stages=(stage(0, 1, 2, 3),), microbatches=4)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b" not in printed(plan)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(plan, force_terminal=True)


def test_layers_are_named_in_runs() -> None:
    """Consecutive layers make a range; many runs are counted."""
    layers = tuple(Layer(id=i, name=f"block {i}", options=(option(),)) for i in range(12))
    edges = tuple(Edge(source=i, target=i + 1, bytes=1.0) for i in range(11))
    graph = LayerGraph(layers=layers, edges=edges)
    assert describe_layers(graph, stage(0, 1, 2, 5)) == "0-2 block 0..block 2, 5 block 5"
    assert describe_layers(graph, stage(0, 2, 4, 6, 8, 10)).endswith("6 block 6 and 2 more")


def test_options_are_counted() -> None:
    """One name where all layers run alike, else how many run in which way."""
    assert describe_options(stage(0, 1)) == "plain"
    assert describe_options(stage(0, 1, 2, lean=(1, 2))) == "1 plain, 2 lean"
    sharded = replace(stage(0, 1, d=2), sharded_optimizer=True)
    assert describe_options(sharded) == "plain, optimizer sharded"


def test_the_devices_of_a_stage_stand_where_they_matter() -> None:
    """On several nodes there is a column for them, and the limit is that of the stage's group."""
    link = Link(bandwidth_bytes_per_second=1.0)
    groups = tuple(
        DeviceGroup(name=name, nodes=2, devices_per_node=2, memory_bytes=memory, link=link)
        for name, memory in (("small", 8 * 2.0**20), ("large", 16 * 2.0**20))
    )
    cluster = Cluster(groups=groups, link=link)
    plan = Plan(stages=(stage(0, 1, d=4), stage(2, 3, d=2)), microbatches=4)
    graph = chain(*[OPTIONS] * 4)
    out = StringIO()
    prices = evaluate(graph, plan, cluster)
    Console(file=out, width=120).print(plan_table(graph, plan, prices, cluster))
    heading, first, second = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert heading.startswith("stage layers d t devices options")
    assert first.startswith("0 0-1 4 1 nodes 0-1: 0-1 plain 2 4 MiB 50.0%")
    assert second.startswith("1 2-3 2 1 node 2: 0-1 plain 1 2 MiB 12.5%")


def test_a_plan_in_one_sentence() -> None:
    """Time per batch and per sample, the schedule, and how many devices are used."""
    given = problem(chain(*[OPTIONS] * 4), devices=3, microbatches=4)
    plan = Plan(stages=(stage(0, 1), stage(2, 3)), microbatches=4)
    prices = evaluate(given.graph, plan, given.cluster, pipelining=GPIPE)
    assert plan_sentence(plan, prices, given.cluster) == (
        "20 ms per batch of 4 microbatches with gpipe, 4 ms per sample, 2 of 3 devices"
    )
