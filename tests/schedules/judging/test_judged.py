"""Plans chosen by simulation: the best of all on small problems, else never a worse one."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.planning.evaluation.pipelining import GPIPE, ONE_F_ONE_B, STEADY, ZERO_BUBBLE
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.exact import exact
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.watch import Watch
from diaulos.schedules.judging import judged as under_test
from diaulos.schedules.judging.judged import fastest_by_simulation, judged
from diaulos.schedules.plans import simulate_plan
from tests.planning.problems import chain, option, problem, problems

FLUSHED = st.sampled_from((GPIPE, ONE_F_ONE_B, ZERO_BUBBLE))


def simulated(given_problem: PlanningProblem, plan: Plan) -> float:
    return simulate_plan(
        given_problem.graph,
        plan,
        given_problem.cluster,
        schedule=given_problem.pipelining.name,
        batches=1,
    ).makespan_seconds


def all_plans(given_problem: PlanningProblem) -> Iterator[Plan]:
    """Every plan of a chain that keeps the rules."""
    ids = given_problem.graph.topological_order
    size = len(ids)
    for cuts in product((False, True), repeat=size - 1):
        ends = [*(i + 1 for i, cut in enumerate(cuts) if cut), size]
        runs = [ids[a:b] for a, b in zip((0, *ends), ends, strict=False)]
        degrees = [(d, t) for d in given_problem.data_degrees for t in given_problem.tensor_degrees]
        for some in product(degrees, repeat=len(runs)):
            if sum(d * t for d, t in some) > given_problem.cluster.devices:
                continue
            choices = [
                given_problem.options(given_problem.graph.layer(i), t)
                for run, (_, t) in zip(runs, some, strict=True)
                for i in run
            ]
            for options in product(*choices):
                names = dict(zip(ids, (o.name for o in options), strict=True))
                plan = Plan(
                    stages=tuple(
                        Stage(
                            layers=run,
                            data_parallel=d,
                            tensor_parallel=t,
                            options={i: names[i] for i in run},
                        )
                        for run, (d, t) in zip(runs, some, strict=True)
                    ),
                    microbatches=given_problem.microbatches,
                )
                if not broken(given_problem, plan):
                    yield plan


def broken(given_problem: PlanningProblem, plan: Plan) -> tuple[str, ...]:
    return violations(
        given_problem.graph,
        plan,
        given_problem.cluster,
        given_problem.costs,
        given_problem.pipelining,
    )


@st.composite
def chains(draw: st.DrawFn) -> PlanningProblem:
    """Three layers in a row, of two options that differ in more than their time.

    What they synchronise differs, too.
    """
    tenths = st.integers(1, 60).map(lambda number: number / 10)
    layers = []
    for layer in range(3):
        sync = {layer + 1: draw(tenths)} if layer < 2 else {}
        seconds, activations, fixed = draw(tenths), draw(tenths) / 4, draw(tenths) / 4
        layers.append(
            [
                option("kept", seconds=seconds, activations=activations, fixed=fixed),
                replace(
                    option(
                        "again",
                        seconds=seconds * draw(st.sampled_from((1.0, 1.3))),
                        activations=activations / 3,
                        fixed=fixed,
                        recompute=True,
                    ),
                    weight_backward_seconds=seconds * draw(st.sampled_from((0.1, 0.4))),
                    output_sync_bytes=sync,
                ),
            ]
        )
    return problem(
        chain(*layers, bytes_between=draw(tenths)),
        devices=draw(st.integers(1, 4)),
        memory=draw(st.sampled_from((3.0, 5.0, 1000.0))),
        bandwidth=draw(st.sampled_from((0.5, 4.0))),
        microbatches=draw(st.sampled_from((2, 4, 6))),
    )


@settings(max_examples=25, deadline=None)
@given(chains(), FLUSHED)
def test_no_plan_of_a_small_problem_is_faster(given_problem, pipelining) -> None:
    """Against the simulation of every plan: the same time, and proven."""
    given_problem = replace(given_problem, pipelining=pipelining)
    best = min(
        (simulated(given_problem, plan) for plan in all_plans(given_problem)), default=math.inf
    )
    found = fastest_by_simulation(given_problem)
    assert (best == math.inf) == (found.best is None)
    if found.best is not None:
        assert found.best.simulated_seconds == pytest.approx(best, rel=1e-9)
        assert found.result.proven_optimal


@settings(max_examples=40, deadline=None)
@given(problems(most_layers=5), FLUSHED, st.booleans())
def test_is_never_worse_than_the_best_by_the_closed_form(plain, pipelining, is_searched) -> None:
    """Also where plans are searched instead of all tried; and every plan keeps the rules."""
    given_problem = replace(plain, pipelining=pipelining)
    with pytest.MonkeyPatch.context() as patch:
        if is_searched:
            patch.setattr(under_test, "_MOST_OUTLINES", 0)
        try:
            found = fastest_by_simulation(given_problem)
        except InputError:
            assume(False)
    known = exact(given_problem).plan
    assert (known is None) == (found.best is None)
    if known is not None:
        assert not broken(given_problem, found.best.plan)
        assert found.best.simulated_seconds <= simulated(given_problem, known) * (1 + 1e-9)
        assert found.best.simulated_seconds == pytest.approx(
            simulated(given_problem, found.best.plan), rel=1e-12
        )
        assert found.best in found.considered


def pair(first: float, second: float, *, devices: int, **figures: float) -> PlanningProblem:
    """Two layers of so many seconds under 1F1B."""
    layers = chain(
        [option(seconds=first)], [option(seconds=second)], bytes_between=figures["bytes"]
    )
    given_problem = problem(
        layers, devices=devices, bandwidth=4.0, microbatches=int(figures["microbatches"])
    )
    return replace(given_problem, pipelining=ONE_F_ONE_B)


def degrees(plan: Plan) -> list[int]:
    return [stage.data_parallel for stage in plan.stages]


def test_messages_overlap_with_computation() -> None:
    """So cutting can be better than the closed form says, which adds them up."""
    found = fastest_by_simulation(pair(3.0, 5.0, devices=3, microbatches=8, bytes=1.0))
    first, best = found.considered[0], found.best
    assert (degrees(first.plan), degrees(best.plan)) == ([2], [1, 2])
    assert (first.evaluation.batch_seconds, first.simulated_seconds) == (32.0, 32.0)
    assert best.evaluation.batch_seconds == 33.5
    assert best.simulated_seconds == pytest.approx(29.0)


def test_unequal_degrees_wait_for_each_other() -> None:
    """So cutting can be worse than the closed form says, which sees the slowest stage alone."""
    found = fastest_by_simulation(pair(1.0, 9.0, devices=4, microbatches=6, bytes=0.0))
    first, best = found.considered[0], found.best
    assert (degrees(first.plan), degrees(best.plan)) == ([1, 3], [3])
    assert first.evaluation.batch_seconds == 19.0
    assert first.simulated_seconds == pytest.approx(21.0)
    assert best.simulated_seconds == 20.0


def test_without_a_flush_it_is_the_exact_plan() -> None:
    """2BW: the plan of the exact planner, with the time from batch to batch."""
    given_problem = problem(
        chain([option(seconds=3.0)], [option(seconds=3.0)]), devices=2, microbatches=4
    )
    found = fastest_by_simulation(replace(given_problem, data_parallel=False))
    assert found.best.plan == exact(replace(given_problem, data_parallel=False)).plan
    assert found.best.simulated_seconds == pytest.approx(12.0)
    assert found.result.proven_optimal


def test_without_a_plan_there_is_a_reason() -> None:
    """Nothing fits: the exact planner's answer says why."""
    found = fastest_by_simulation(
        replace(problem(chain([option(fixed=2.0)]), memory=1.0), pipelining=GPIPE)
    )
    assert found.best is None
    assert "needs at least" in found.result.reason


def test_a_watch_that_is_over_ends_the_search() -> None:
    """The best by the closed form is left, without a proof."""
    layers = [[option(seconds=float(i + 1))] for i in range(4)]
    given_problem = replace(
        problem(chain(*layers), devices=4, microbatches=8), pipelining=ONE_F_ONE_B
    )
    found = fastest_by_simulation(given_problem, Watch(time_limit_seconds=0.0))
    assert found.simulations == 1
    assert found.best == found.considered[0]
    assert not found.result.proven_optimal


def test_stages_stand_on_nodes() -> None:
    """On nodes plans are placed, keep the rules, and are not proven."""
    link = Link(bandwidth_bytes_per_second=4.0, latency_seconds=0.1)
    group = DeviceGroup(name="a", nodes=2, devices_per_node=2, memory_bytes=50.0, link=link)
    layers = [[option(seconds=float(i + 1))] for i in range(4)]
    given_problem = replace(
        problem(chain(*layers, bytes_between=1.0), microbatches=4),
        cluster=Cluster(groups=(group,), link=link),
        pipelining=ONE_F_ONE_B,
    )
    found = fastest_by_simulation(given_problem)
    assert found.best.plan.is_placed
    assert not broken(given_problem, found.best.plan)
    assert not found.result.proven_optimal


@pytest.mark.parametrize("pipelining", [GPIPE, ONE_F_ONE_B, ZERO_BUBBLE, STEADY])
def test_equal_stages_take_what_the_closed_form_says(pipelining) -> None:
    """Equal stages and free links: both figures of a plan agree."""
    given_problem = replace(
        problem(
            chain(*[[option(seconds=3.0)]] * 3),
            devices=3,
            microbatches=8,
            bandwidth=1e9,
            data_parallel=False,
        ),
        pipelining=pipelining,
    )
    known = judged(given_problem, exact(given_problem).plan)
    assert known.simulated_seconds == pytest.approx(known.evaluation.batch_seconds, rel=1e-6)
