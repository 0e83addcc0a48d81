"""Among equally fast plans one rule picks the winner; the exhaustive planner has the same rule."""

import pytest

from diaulos.models.graph import Layer, LayerGraph
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.exact import exact
from diaulos.planning.plan import Plan
from diaulos.planning.problem import Planner, PlanningProblem
from tests.planning.problems import chain, option, problem

both = pytest.mark.parametrize("planner", [exact, exhaustive])


def unreplicated(graph: LayerGraph, devices: int) -> PlanningProblem:
    return problem(graph, devices=devices, microbatches=8, data_parallel=False)


def found(planner: Planner, given: PlanningProblem) -> Plan:
    plan = planner(given).plan
    assert plan is not None
    return plan


@both
def test_fewest_devices(planner: Planner) -> None:
    """Devices that do not speed up the bottleneck are left alone."""
    graph = chain([option(seconds=4.0)], [option(seconds=1.0), option(tensor_parallel=2)])
    assert found(planner, unreplicated(graph, devices=8)).devices_used == 2


@both
def test_then_fewest_stages(planner: Planner) -> None:
    """Two layers on two devices stay together where splitting them helps nobody."""
    lean = [option(seconds=3.0), option(tensor_parallel=2, seconds=2.0)]
    plan = found(planner, unreplicated(chain([option(seconds=4.0)], lean, lean), devices=3))
    assert [stage.layers for stage in plan.stages] == [(0,), (1, 2)]


@both
def test_then_least_memory(planner: Planner) -> None:
    """A layer with large activations goes where fewer microbatches are in flight."""
    first, last = [option(seconds=2.0, activations=1.0)], [option(seconds=2.0, activations=4.0)]
    plan = found(planner, unreplicated(chain(first, last, first), devices=2))
    assert [stage.layers for stage in plan.stages] == [(0,), (1, 2)]
    heavy_end = [option(seconds=2.0, fixed=0.0, activations=1.0)]
    plan = found(planner, unreplicated(chain(heavy_end, heavy_end, last), devices=2))
    assert [stage.layers for stage in plan.stages] == [(0,), (1, 2)]


@both
def test_memory_counts_all_devices(planner: Planner) -> None:
    """What two replicas hold counts twice, so that free weights go to the single device."""
    graph = chain([option(seconds=2.0)], [option(seconds=0.0, fixed=9.0)], [option(seconds=4.0)])
    plan = found(planner, problem(graph, devices=3, microbatches=4))
    assert [(stage.layers, stage.data_parallel) for stage in plan.stages] == [
        ((0, 1), 1),
        ((2,), 2),
    ]


@both
def test_then_the_first_in_canonical_order(planner: Planner) -> None:
    """Of plans that are equal in all else, the one whose first stage ends first."""
    plan = found(planner, unreplicated(chain(*[[option(seconds=2.0)]] * 3), devices=2))
    assert [stage.layers for stage in plan.stages] == [(0,), (1, 2)]


@both
def test_parallel_branches_are_ordered_by_the_source(planner: Planner) -> None:
    """Layers without edges stand in the order of the source."""
    layers = tuple(Layer(id=i, options=(option(seconds=1.0),)) for i in (5, 3, 9))
    plan = found(planner, unreplicated(LayerGraph(layers=layers), devices=3))
    assert [stage.layers for stage in plan.stages] == [(5,), (3,), (9,)]


@both
def test_options_of_a_stage(planner: Planner) -> None:
    """Fastest, then least memory, then first in the source."""
    layer = [
        option("slow", seconds=2.0),
        option("large", seconds=1.0, fixed=5.0),
        option("small", seconds=1.0, fixed=2.0),
        option("also small", seconds=1.0, activations=2.0),
    ]
    plan = found(planner, problem(chain(layer)))
    assert plan.stages[0].options == {0: "small"}


@both
def test_times_equal_within_rounding_are_ties(planner: Planner) -> None:
    """0.1 + 0.2 s is as fast as 0.3 s, so that memory decides."""
    pair = [option("sum", seconds=0.1 + 0.2, fixed=1.0), option("whole", seconds=0.3, fixed=2.0)]
    assert found(planner, problem(chain(pair))).stages[0].options == {0: "sum"}


@both
def test_a_time_of_zero(planner: Planner) -> None:
    """Where everything is free, one device and one stage do."""
    plan = found(planner, problem(chain(*[[option(seconds=0.0)]] * 3), devices=4, memory=0.0))
    assert (plan.devices_used, len(plan.stages)) == (1, 1)
