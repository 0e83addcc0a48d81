"""Frontiers: each point is what the planner answers there, asked only where nothing tells it."""

import csv
from dataclasses import replace

import pytest
from hypothesis import given, settings

from diaulos.clusters.cluster import Cluster, DeviceGroup
from diaulos.errors import InputError
from diaulos.planning.baselines.equal import equal
from diaulos.planning.exact import exact
from diaulos.planning.explanation.comparison import ABLATIONS, Contender
from diaulos.planning.explanation.frontier import device_clusters, frontier, memory_clusters
from diaulos.planning.problem import PlanningProblem, PlanningResult
from tests.planning.problems import chain, option, problem, problems
from tests.planning.reference import FOLDER, needs_reference, piper_file

COLUMNS = ("piper", "noDP", "noTP", "noAR")
SERIES = list(zip(ABLATIONS, COLUMNS, strict=True))
SAMPLE = (8, 9, 10, 17, 31, 64, 100, 127, 128, 300, 1024)
BERT_CLUSTER = Cluster.flat(devices=8, memory_bytes=8 * 2**30, bandwidth_bytes_per_second=25e9)
TWO_LAYERS = problem(
    chain(*[[option(seconds=2.0, fixed=2.0)]] * 2), devices=4, memory=4.0, microbatches=4
)


class Counted:
    """The exact planner, counting how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, given: PlanningProblem) -> PlanningResult:
        self.asked += 1
        return exact(given)


def assert_same(found: PlanningResult, alone: PlanningResult) -> None:
    """Both plans are as good by time, devices and stages, or there is none for the same reason.

    Memory, the next of the rule, may differ: a limit changes which options a stage has.
    """
    assert (found.plan is None) == (alone.plan is None)
    assert (found.reason, found.proven_optimal) == (alone.reason, alone.proven_optimal)
    if found.plan is not None and alone.plan is not None:
        assert found.evaluation is not None
        assert alone.evaluation is not None
        assert found.evaluation.batch_seconds == pytest.approx(
            alone.evaluation.batch_seconds, rel=1e-12
        )
        assert found.plan.devices_used == alone.plan.devices_used
        assert len(found.plan.stages) == len(alone.plan.stages)


@needs_reference
@pytest.mark.parametrize(
    ("contender", "column"), list(zip(ABLATIONS, COLUMNS, strict=True)), ids=COLUMNS
)
def test_figure_2(contender: Contender, column: str) -> None:
    """A sample of Piper's figure 2, made with links of 25 GB/s: equal to 1e-9."""
    with (FOLDER / "fig2.csv").open(encoding="utf-8", newline="") as file:
        expected = {int(row["k"]): float(row[column]) for row in csv.DictReader(file)}
    bert = PlanningProblem(
        graph=piper_file("bert32a100.json").graph, cluster=BERT_CLUSTER, microbatches=960
    )
    points = frontier(
        contender.problem(bert), device_clusters(BERT_CLUSTER, SAMPLE), contender.planner
    )

    assert [point.cluster.devices for point in points] == list(SAMPLE)
    for point in points:
        assert point.result.evaluation is not None
        seconds = point.result.evaluation.time_per_sample_seconds
        assert seconds == pytest.approx(expected[point.cluster.devices], rel=1e-9)


@given(problems(most_layers=4))
@settings(max_examples=25, deadline=None)
def test_points_over_devices_are_the_planners_answers(given: PlanningProblem) -> None:
    """Every point is the answer to the problem on its cluster, however it was found."""
    for point in frontier(given, device_clusters(given.cluster, range(1, 6)), exact):
        assert_same(point.result, exact(replace(given, cluster=point.cluster)))


@given(problems(most_layers=4))
@settings(max_examples=25, deadline=None)
def test_points_over_memory_are_the_planners_answers(given: PlanningProblem) -> None:
    """The same over memory; more memory is never slower."""
    clusters = memory_clusters(given.cluster, [1.0, 4.0, 6.1, 8.0, 12.3, 20.0, 1000.0])
    points = frontier(given, clusters, exact)
    for point in points:
        assert_same(point.result, exact(replace(given, cluster=point.cluster)))
    times = [point.batch_seconds for point in points]
    found = [time for time in times if time is not None]
    assert found == sorted(found, reverse=True)
    assert None not in times[len(times) - len(found) :]


def test_the_planner_is_not_asked_twice() -> None:
    """A plan that uses fewer devices answers for all clusters down to those, none for all."""
    planner = Counted()
    sizes = (1.0, 2.0, 3.0, 4.0, 5.0, 1e3, 1e6)
    points = frontier(TWO_LAYERS, memory_clusters(TWO_LAYERS.cluster, sizes), planner)

    # From 4 bytes on both layers share a device; 2 and 3 bytes hold one of them; 1 holds none.
    assert planner.asked == 3
    plans = [point.result.plan for point in points]
    assert [plan and len(plan.stages) for plan in plans] == [None, 2, 2, 1, 1, 1, 1]


def test_unproven_answers_are_asked_for_everywhere() -> None:
    """A planner that proves nothing is asked at every point."""
    clusters = device_clusters(TWO_LAYERS.cluster, (1, 2, 3, 4))
    for point in frontier(TWO_LAYERS, clusters, equal):
        assert_same(point.result, equal(replace(TWO_LAYERS, cluster=point.cluster)))
        assert point.result.search_seconds > 0


def test_clusters_grow() -> None:
    """Clusters that shrink, or differ in their links, make no frontier."""
    small, large = device_clusters(TWO_LAYERS.cluster, (1, 2))
    for wrong in (
        (large, small),
        (small, large.with_flat(bandwidth_bytes_per_second=5.0)),
        (small, large.with_flat(memory_bytes=1.0)),
    ):
        with pytest.raises(InputError, match="do not grow"):
            frontier(TWO_LAYERS, wrong, exact)


def test_clusters_are_flat() -> None:
    """Clusters of several nodes are refused."""
    link = TWO_LAYERS.cluster.link
    group = DeviceGroup(name="a", nodes=2, devices_per_node=2, memory_bytes=9.0, link=link)
    with pytest.raises(InputError, match="several nodes"):
        frontier(TWO_LAYERS, (Cluster(groups=(group,), link=link),), exact)
