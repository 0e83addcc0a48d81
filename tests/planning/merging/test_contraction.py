"""Merged layers cost what their layers cost, and a plan finds its way back."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.graph import FixedMemory, LayerGraph, Option
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.merging.contraction import Group, alone, identity, merge
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problem, problems


def first_options(graph: LayerGraph, layers: tuple[int, ...]) -> Group:
    """Layers as one, all with their first option at each degree that they share."""
    choices = {}
    for degree in graph.tensor_parallel_degrees:
        some = {layer: graph.layer(layer).options_at(degree) for layer in layers}
        if all(some.values()):
            choices[degree, "first"] = {layer: at[0].name for layer, at in some.items()}
    return Group(layers=layers, choices=choices)


@given(problems(), st.data())
def test_a_plan_costs_what_it_stands_for(given_problem: PlanningProblem, data: st.DataObject):
    """A plan of merged layers is priced as its expanded plan is, which breaks no rule."""
    graph, order = given_problem.graph, given_problem.graph.topological_order
    borders = [0, *sorted(data.draw(st.sets(st.integers(1, len(order))))), len(order)]
    groups = []
    for run in (order[start:end] for start, end in pairwise(borders) if start < end):
        merged = first_options(graph, run)
        groups += [merged] if merged.choices else [alone(graph.layer(layer)) for layer in run]
    contraction = merge(graph, groups)
    result = exhaustive(replace(given_problem, graph=contraction.graph))
    if result.plan is None or result.evaluation is None:
        return
    plan = contraction.expand(result.plan)
    assert violations(graph, plan, given_problem.cluster) == ()
    expanded = evaluate(graph, plan, given_problem.cluster)
    for one, other in zip(expanded.stages, result.evaluation.stages, strict=True):
        assert one.time_per_sample_seconds == pytest.approx(other.time_per_sample_seconds)
        assert one.memory_bytes == pytest.approx(other.memory_bytes)


def test_amounts_are_summed() -> None:
    """Times, parts of times, memory by kind and names of a merged layer."""

    def full(name: str, forward: float | None) -> Option:
        return Option(
            name=name,
            seconds=3.0,
            forward_seconds=forward,
            weight_backward_seconds=0.5,
            update_seconds=0.25,
            parameter_bytes=8.0,
            activation_bytes=5.0,
            fixed_memory=FixedMemory(parameters_bytes=8.0, temporary_bytes=1.0),
        )

    graph = chain([full("a", 1.0)], [full("b", 1.5)], [full("c", None)], bytes_between=7.0)
    pair = Group(layers=(0, 1), choices={(1, "both"): {0: "a", 1: "b"}})
    contraction = merge(graph, [pair, alone(graph.layer(2))])
    assert contraction.graph.layer(0).options == (
        Option(
            name="both",
            seconds=6.0,
            forward_seconds=2.5,
            weight_backward_seconds=1.0,
            update_seconds=0.5,
            parameter_bytes=16.0,
            activation_bytes=10.0,
            fixed_memory=FixedMemory(parameters_bytes=16.0, temporary_bytes=2.0),
        ),
    )
    assert contraction.graph.layer(2) == graph.layer(2)
    assert [(e.source, e.target, e.bytes) for e in contraction.graph.edges] == [(0, 2, 7.0)]
    last = Group(layers=(1, 2), choices={(1, "both"): {1: "b", 2: "c"}})
    merged = merge(graph, [alone(graph.layer(0)), last])
    assert merged.graph.layer(1).options[0].forward_seconds is None


def test_a_graph_stands_for_itself() -> None:
    """Without merges a plan stays as it is."""
    given_problem = problem(chain([option()], [option()]), devices=2, microbatches=2)
    plan = exhaustive(given_problem).plan
    assert plan is not None
    assert identity(given_problem.graph).expand(plan) == plan


def test_a_plan_of_another_graph_is_refused() -> None:
    """A layer that was merged away has no place in a plan to expand."""
    graph = chain([option()], [option()])
    plan = exhaustive(problem(graph)).plan
    pair = Group(layers=(0, 1), choices={(1, "plain"): {0: "plain", 1: "plain"}})
    assert plan is not None
    with pytest.raises(InputError, match="names layer 1; it is not a plan of the contracted"):
        merge(graph, [pair]).expand(plan)
