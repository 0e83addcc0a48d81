"""The exact planner finds what the exhaustive one finds, in any unit of time."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.graph import Edge, Layer, LayerGraph
from diaulos.planning.evaluate import evaluate
from diaulos.planning.exact import exact, feasible
from diaulos.planning.exhaustive import exhaustive
from diaulos.planning.pipelining import PIPELININGS
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.rules import violations
from tests.planning.problems import (
    detailed_problems,
    option,
    problem,
    problems,
    scaled,
    with_limit_of,
)

_many = settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


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


@given(problems())
def test_more_of_anything_is_never_worse(given_problem: PlanningProblem) -> None:
    """More devices, memory or bandwidth never make the best plan slower."""
    found = exact(given_problem).evaluation
    if found is None:
        return
    cluster = given_problem.cluster
    bandwidth = cluster.slowest_link.bandwidth_bytes_per_second
    for more in (
        cluster.with_flat(devices=cluster.devices + 1),
        cluster.with_flat(memory_bytes=cluster.largest_memory_bytes * 1.5),
        cluster.with_flat(bandwidth_bytes_per_second=bandwidth * 2),
    ):
        other = exact(replace(given_problem, cluster=more)).evaluation
        assert other is not None
        assert other.time_per_sample_seconds <= found.time_per_sample_seconds * (1 + 1e-12)


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
