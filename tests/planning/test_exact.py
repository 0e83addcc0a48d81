"""The exact planner finds what the exhaustive one finds, for every objective and in any unit."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.graph import Edge, Layer, LayerGraph
from diaulos.planning import exact as exact_module
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import PIPELININGS
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.exact import exact, feasible, is_searched_whole
from diaulos.planning.problem import PlanningProblem, PlanningResult
from diaulos.planning.search.stage_costs import downsets
from diaulos.planning.search.watch import Progress, Watch
from tests.planning.objectives import OBJECTIVES
from tests.planning.problems import (
    detailed_problems,
    option,
    problem,
    problems,
    scaled,
    with_limit_of,
    with_links,
)
from tests.planning.wide_graphs import cells, fan, random_graph

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
_many = settings(max_examples=300, suppress_health_check=_slow)
_some = settings(max_examples=60, suppress_health_check=_slow)
_few = settings(max_examples=20, suppress_health_check=_slow)


@_many
@given(problems())
def test_equals_the_exhaustive_planner(given_problem: PlanningProblem) -> None:
    """Both find the same plan, also where its memory is exactly the limit; `evaluate` agrees."""
    wanted = exhaustive(given_problem)
    event(f"stages: {len(wanted.plan.stages) if wanted.plan else 0}")
    assert exact(given_problem).plan == wanted.plan
    if wanted.plan is not None:
        tight = with_limit_of(given_problem, wanted)
        found = exact(tight)
        assert found.plan == exhaustive(tight).plan
        assert found.plan is not None
        assert found.evaluation == evaluate(tight.graph, found.plan, tight.cluster)
        assert violations(tight.graph, found.plan, tight.cluster) == ()


each = pytest.mark.parametrize("objective", OBJECTIVES)
UNIT = 1e-9
"""Bounds are whole numbers of a unit of time, which is less than that where amounts are largest."""


def drawn(data: st.DataObject, objective: str) -> tuple[PlanningProblem, PlanningResult]:
    """A problem with the exact planner's answer; what that refuses is passed over."""
    given_problem = data.draw(OBJECTIVES[objective])
    return given_problem, answer_of(given_problem)


def answer_of(given_problem: PlanningProblem) -> PlanningResult:
    """The exact planner's answer, unless it refuses options that cannot be compared."""
    try:
        return exact(given_problem)
    except InputError:
        assume(False)
        raise


def batch_seconds(result: PlanningResult) -> float:
    """Of the plan; infinite where there is none."""
    return result.evaluation.batch_seconds if result.evaluation else math.inf


def assert_as_fast(one: PlanningResult, other: PlanningResult, factor: float = 1.0) -> None:
    """Both have no plan, or plans of which one takes as long as the other, times a factor."""
    assert (one.plan is None) == (other.plan is None)
    if one.plan is not None:
        wanted = pytest.approx(batch_seconds(other) * factor, rel=1e-11, abs=1e-300)
        assert batch_seconds(one) == wanted


@each
@_some
@given(st.data())
def test_no_plan_is_faster(objective: str, data: st.DataObject) -> None:
    """For every objective the exhaustive planner finds no faster plan, and a plan if there is."""
    given_problem, found = drawn(data, objective)
    assert found.proven_optimal
    assert_as_fast(found, exhaustive(given_problem))


@each
@_few
@given(st.data(), st.sampled_from((1e-6, 1e6)))
def test_time_scales(objective: str, data: st.DataObject, factor: float) -> None:
    """In another unit of time the answer takes as long."""
    given_problem, found = drawn(data, objective)
    assert_as_fast(exact(scaled(given_problem, factor)), found, factor)


@each
@_few
@given(st.data())
def test_more_is_never_worse(objective: str, data: st.DataObject) -> None:
    """More memory, bandwidth or devices at the end of the line never make a batch slower."""
    given_problem, found = drawn(data, objective)
    cluster = given_problem.cluster
    *others, last = cluster.groups
    roomy = tuple(replace(g, memory_bytes=1.5 * g.memory_bytes) for g in cluster.groups)
    name = "devices_per_node" if cluster.is_flat else "nodes"
    larger = replace(last, **{name: getattr(last, name) + 1})
    for more in (
        replace(cluster, groups=roomy),
        replace(cluster, groups=(*others, larger)),
        with_links(cluster, bandwidth=2.0),
        with_links(cluster, bandwidth=1.0, latency=0.5),
    ):
        better = answer_of(replace(given_problem, cluster=more))
        assert batch_seconds(better) <= batch_seconds(found) * (1 + 1e-11)


@each
@_few
@given(st.data())
def test_other_ids_take_as_long(objective: str, data: st.DataObject) -> None:
    """Whatever layers are called, and in whatever order they are listed."""
    given_problem, found = drawn(data, objective)
    ids = [layer.id for layer in given_problem.graph.layers]
    new_ids = dict(zip(ids, data.draw(st.permutations(ids)), strict=True))
    renamed = with_ids(given_problem.graph, new_ids)
    layers = tuple(data.draw(st.permutations(renamed.layers)))
    edges = tuple(data.draw(st.permutations(renamed.edges)))
    graph = replace(renamed, layers=layers, edges=edges)
    assert_as_fast(exact(replace(given_problem, graph=graph)), found)


@each
@_few
@given(st.data())
def test_a_search_that_is_stopped(objective: str, data: st.DataObject) -> None:
    """At once or by Ctrl-C: a plan that is marked and not faster than the bound, if there is."""
    given_problem, found = drawn(data, objective)

    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    for watch in (Watch(time_limit_seconds=0.0), Watch(report=interrupt)):
        stopped = exact(given_problem, watch)
        if found.plan is None:
            assert stopped.plan is None
        elif stopped.proven_optimal:
            assert_as_fast(stopped, found)
        else:
            assert stopped.remark == "the search was stopped before the proof"
            assert stopped.lower_bound_seconds is not None
            assert stopped.lower_bound_seconds <= batch_seconds(found) * (1 + 1e-11) + UNIT
            assert batch_seconds(found) <= batch_seconds(stopped) * (1 + 1e-11)
            if stopped.plan is None:
                assert stopped.reason is not None
                assert stopped.reason.startswith("the exact planner found no plan")


@each
@_few
@given(st.data(), st.integers(1, 12))
def test_coarsened_graphs(objective: str, data: st.DataObject, most: int) -> None:
    """Forced into few downsets, a plan is no faster than the fastest, and the bound no slower."""
    given_problem, found = drawn(data, objective)
    layers = len(given_problem.graph.layers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_module, "_FEW_DOWNSETS", 1)
        patch.setattr(exact_module, "MOST_DOWNSETS", 1)
        patch.setattr(exact_module, "_COARSE_DOWNSETS", (layers + 1, layers + most))
        coarse = exact(given_problem)
    assert batch_seconds(found) <= batch_seconds(coarse) * (1 + 1e-11)
    if coarse.plan is not None:
        assert coarse.lower_bound_seconds is not None
        assert coarse.lower_bound_seconds <= batch_seconds(found) * (1 + 1e-11) + UNIT
    if coarse.proven_optimal:
        assert_as_fast(coarse, found)
    else:
        assert coarse.remark is not None
        assert "too many downsets" in coarse.remark


WIDE = {
    "fan": fan(16, alike=False),
    "random": random_graph(200, neighbours=1, seed=1),
    "cells": cells(12),
}


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("schedule", ["2bw", "1f1b"])
def test_wide_graphs(name: str, schedule: str) -> None:
    """Graphs with far too many downsets get a plan within a time limit, with a bound."""
    given_problem = replace(
        problem(WIDE[name], devices=16, memory=200.0, bandwidth=5.0, microbatches=32),
        pipelining=PIPELININGS[schedule],
    )
    found = exact(given_problem, Watch(time_limit_seconds=0.2))
    assert found.plan is not None
    assert found.lower_bound_seconds is not None
    assert 0 < found.lower_bound_seconds <= batch_seconds(found)
    assert found.proven_optimal == (found.remark is None)
    work = sum(layer.options[0].seconds for layer in given_problem.graph.layers)
    assert found.lower_bound_seconds >= 32 * work / 16 * (1 - 1e-12)


def test_an_interruption_of_a_wide_graph() -> None:
    """Ctrl-C in a later, looser order leaves the best plan of those before it."""
    given_problem = problem(WIDE["fan"], devices=8, memory=60.0, bandwidth=5.0, microbatches=32)
    reports: list[Progress] = []

    def interrupt(progress: Progress) -> None:
        reports.append(progress)
        if len(reports) == 3:
            raise KeyboardInterrupt

    found = exact(given_problem, Watch(report=interrupt))
    assert found.plan is not None
    assert not found.proven_optimal
    assert found.remark is not None


def test_too_many_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of few downsets with too many stages is put in an order, in all that asks of it."""
    given_problem = problem(fan(11, alike=False), devices=8, memory=60.0, microbatches=32)
    assert is_searched_whole(given_problem)
    assert exact(given_problem).proven_optimal
    monkeypatch.setattr(downsets, "MOST_PAIRS", 60_000)
    assert not is_searched_whole(given_problem)
    assert feasible(given_problem)
    found = exact(given_problem)
    assert found.plan is not None
    assert found.proven_optimal == (found.remark is None)
    monkeypatch.setattr(downsets, "MOST_PAIRS", 60)
    with pytest.raises(InputError, match="the graph has 12 layers"):
        exact(given_problem)


@_many
@given(problems(), st.sampled_from((1e-6, 1e6)))
def test_the_unit_of_time_does_not_matter(given_problem: PlanningProblem, factor: float) -> None:
    """All times multiplied by a factor multiply the answer by it, and change no plan."""
    found, in_other_unit = exact(given_problem), exact(scaled(given_problem, factor))
    assert found.plan == in_other_unit.plan
    if found.evaluation is not None and in_other_unit.evaluation is not None:
        assert in_other_unit.evaluation.time_per_sample_seconds == pytest.approx(
            found.evaluation.time_per_sample_seconds * factor, rel=1e-12
        )


@_many
@given(problems())
def test_ids_do_not_matter(given_problem: PlanningProblem) -> None:
    """Other ids for the same layers, in the same order, give the same plan."""
    new_ids = {layer.id: 1000 - 7 * layer.id for layer in given_problem.graph.layers}
    renamed = replace(given_problem, graph=with_ids(given_problem.graph, new_ids))
    found, other = exact(given_problem).plan, exact(renamed).plan
    assert (found is None) == (other is None)
    if found is not None and other is not None:
        assert [
            (tuple(new_ids[i] for i in stage.layers), stage.data_parallel, stage.tensor_parallel)
            for stage in found.stages
        ] == [(stage.layers, stage.data_parallel, stage.tensor_parallel) for stage in other.stages]


def with_ids(graph: LayerGraph, ids: dict[int, int]) -> LayerGraph:
    def renamed(amounts: Mapping[int, float]) -> dict[int, float]:
        return {ids[layer]: amount for layer, amount in amounts.items()}

    layers = []
    for layer in graph.layers:
        options = tuple(
            replace(
                o,
                input_sync_bytes=renamed(o.input_sync_bytes),
                output_sync_bytes=renamed(o.output_sync_bytes),
            )
            for o in layer.options
        )
        layers.append(replace(layer, id=ids[layer.id], options=options))
    return LayerGraph(
        layers=tuple(layers),
        edges=tuple(
            replace(edge, source=ids[edge.source], target=ids[edge.target]) for edge in graph.edges
        ),
    )


def own_graph() -> LayerGraph:
    """Eight layers with a skip, a side branch and two sizes; recomputation and halves."""
    layers = []
    for i, (seconds, kept, weights) in enumerate(
        [(1.2, 6.0, 4.0), *[(3.0, 9.0, 2.5), (2.1, 7.0, 1.5)] * 3, (4.5, 2.0, 8.0)]
    ):
        layers.append(
            Layer(
                id=10 * i,
                options=tuple(
                    option(
                        name,
                        tensor_parallel=t,
                        seconds=seconds * slowdown / t + (0.1 if t > 1 else 0.0),
                        parameters=weights / t,
                        activations=kept * share / t,
                        fixed=2 * weights / t,
                        recompute=name == "recompute",
                    )
                    for t in (1, 2)
                    for name, slowdown, share in (("plain", 1.0, 1.0), ("recompute", 1.3, 0.2))
                ),
            )
        )
    ends = [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50), (50, 60), (60, 70), (0, 40), (20, 60)]
    edges = tuple(Edge(source=a, target=b, bytes=0.5 + 0.01 * (b - a)) for a, b in ends)
    return LayerGraph(layers=tuple(layers), edges=edges)


NO_DATA, NO_TENSOR, NO_RECOMPUTE = (
    {"data_parallel": False},
    {"tensor_parallel": False},
    {"recompute": False},
)
EXPECTED: list[tuple[int, float, dict[str, bool], float | None]] = [
    (1, 30.0, {}, None),
    (1, 60.0, {}, 27.3),
    (1, 400.0, {}, 21.0),
    (2, 30.0, {}, 14.45),
    (2, 60.0, {}, 11.3),
    (4, 30.0, {}, 7.2),
    (4, 30.0, NO_DATA, 7.2),
    (4, 30.0, NO_TENSOR, 7.47),
    (4, 30.0, NO_RECOMPUTE, None),
    (4, 60.0, {}, 6.05),
    (4, 60.0, NO_DATA, 6.8),
    (4, 60.0, NO_TENSOR, 6.78),
    (4, 400.0, NO_TENSOR, 6.29 + 1e-2 / 9),
    (8, 30.0, {}, 3.83),
    (8, 60.0, {}, 3.425),
    (8, 400.0, {}, 3.41 + 8e-2 / 9),
]


@pytest.mark.parametrize(("devices", "memory", "switches", "expected"), EXPECTED)
def test_expected_values(
    devices: int, memory: float, switches: dict[str, bool], expected: float | None
) -> None:
    """The values of a small graph, which the exhaustive planner gave."""
    found = exact(
        problem(
            own_graph(), devices=devices, memory=memory, bandwidth=5.0, microbatches=12, **switches
        )
    )
    assert found.proven_optimal
    time = found.evaluation and found.evaluation.time_per_sample_seconds
    assert time == (expected and pytest.approx(expected, rel=1e-12))


@settings(max_examples=60, deadline=None)
@given(detailed_problems(), st.sampled_from(list(PIPELININGS.values())))
def test_a_problem_is_feasible_where_it_has_a_plan(given_problem, pipelining) -> None:
    """Under every schedule, also where what stages hold depends on all of them."""
    there = replace(given_problem, pipelining=pipelining)
    try:
        plan = exact(there).plan
    except InputError:
        assume(False)
    assert feasible(there) == (plan is not None)
