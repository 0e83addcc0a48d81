"""Outlines become plans that keep the rules, and plans become outlines."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.planning.evaluation.pipelining import GPIPE, ONE_F_ONE_B, ZERO_BUBBLE
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.exact import exact
from diaulos.planning.local_search.outlines import Degrees, Outline, Outlines, without_communication
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, detailed_problems, option, problem

FLUSHED = st.sampled_from((GPIPE, ONE_F_ONE_B, ZERO_BUBBLE))


def outlines_of(given_problem: PlanningProblem) -> Outlines | None:
    """The outlines of a problem; None where the exact planner refuses it, too."""
    try:
        return Outlines.of(given_problem)
    except InputError:
        return None


@settings(max_examples=60, deadline=None)
@given(detailed_problems(), FLUSHED)
def test_plans_of_outlines_keep_the_rules(plain: PlanningProblem, pipelining) -> None:
    """On nodes and groups as well, with their places, options and numbers in flight."""
    given_problem = replace(plain, pipelining=pipelining)
    outlines = outlines_of(given_problem)
    assume(outlines is not None)
    for outline in outlines.first(50):
        placements = outlines.placements(outline)
        if placements is None:
            continue
        plan = Plan(stages=tuple(map(outlines.stage, placements)), microbatches=plain.microbatches)
        assert not violations(
            plain.graph, plan, plain.cluster, given_problem.costs, given_problem.pipelining
        )
        assert outlines.outline(plan) == outline


@settings(max_examples=40, deadline=None)
@given(detailed_problems(), FLUSHED)
def test_the_exact_plan_has_an_outline(plain: PlanningProblem, pipelining) -> None:
    """On one node that outline fits, and it is among all."""
    given_problem = replace(plain, pipelining=pipelining)
    outlines = outlines_of(given_problem)
    assume(outlines is not None)
    plan = exact(given_problem).plan
    assume(plan is not None)
    outline = outlines.outline(plan)
    assert outline is not None
    if given_problem.cluster.is_flat:
        assert outlines.placements(outline) is not None
    everything = outlines.first(5_000)
    assert len(everything) == 5_000 or outline in everything


def test_all_outlines_of_a_chain() -> None:
    """Two layers on two devices: together in one or two copies, or apart."""
    outlines = outlines_of(
        replace(
            problem(chain([option()], [option()]), devices=2, microbatches=2),
            pipelining=ONE_F_ONE_B,
        )
    )
    one, two = Degrees(1, 1), Degrees(2, 1)
    assert set(outlines.first(9)) == {
        Outline((2, 0), (one,)),
        Outline((2, 0), (two,)),
        Outline((2, 1, 0), (one, one)),
    }
    assert len(outlines.first(2)) == 2
    assert outlines.are_all


def test_what_does_not_fit_has_no_placements() -> None:
    """Too many devices, or memory over the limit with so many microbatches in flight."""
    given_problem = replace(
        problem(
            chain([option(activations=3.0)], [option(activations=1.0)]),
            devices=2,
            memory=5.0,
            microbatches=4,
        ),
        pipelining=ONE_F_ONE_B,
    )
    outlines = outlines_of(given_problem)
    one = Degrees(1, 1)
    assert outlines.placements(Outline((2, 0), (Degrees(4, 1),))) is None
    assert outlines.placements(Outline((2, 1, 0), (one, one))) is None
    assert outlines.placements(Outline((2, 0), (one,))) is not None


def test_nothing_takes_time_on_silent_links() -> None:
    """The cluster is as it was, but for its links."""
    cluster = problem(chain([option()]), devices=3).cluster
    silent = without_communication(cluster)
    assert silent.groups[0].link.bandwidth_bytes_per_second > 1e20
    assert silent.link.latency_seconds == 0
    assert (silent.devices, silent.largest_memory_bytes) == (3, cluster.largest_memory_bytes)
