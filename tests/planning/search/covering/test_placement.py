"""The judge chooses options exactly, against every choice and against `evaluate`."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.models.graph import FixedMemory
from diaulos.planning.evaluation.costs import DETAILED
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.covering.placement import Judge, Placement, StageChoice, layers_of
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold
from tests.planning.problems import chain, detailed_problems, option, problem, problems
from tests.planning.search.spaces import (
    EveryPlan,
    all_choices,
    flush_problems,
    rows_of,
    space_of,
    spaces,
)

_many = settings(max_examples=120)


def on_one_node(detailed: PlanningProblem) -> PlanningProblem:
    """A detailed problem on the first node of its cluster."""
    group = replace(detailed.cluster.groups[0], nodes=1)
    return replace(detailed, cluster=replace(detailed.cluster, groups=(group,)))


flat = st.one_of(
    problems(most_layers=3),
    flush_problems(most_layers=3),
    detailed_problems(most_layers=3).map(on_one_node),
)


@_many
@given(spaces(), st.data())
def test_the_best_of_all_choices(space: Space, data: st.DataObject) -> None:
    """Fastest, then of least memory, temporaries included; None where nothing fits."""
    judge = Judge(space=space)
    for _ in range(5):
        pair = data.draw(st.integers(0, len(space.pairs) - 1))
        degree = data.draw(st.integers(0, len(space.degrees) - 1))
        in_flight = data.draw(st.integers(1, space.problem.microbatches))
        choices = all_choices(space, space.degrees[degree].setting, pair)
        if choices is None:
            continue
        found = judge.choice(Placement(pair=pair, degree=degree, in_flight=in_flight, end=0))
        least = choices.least_time(in_flight)
        if found is None:
            assert choices.least_time(in_flight, rounding=-1e-9) is None
            continue
        assert found.options in choices.options
        place = choices.options.index(found.options)
        assert found.time == choices.times[place]
        held = choices.activation_bytes * in_flight + choices.once_bytes
        assert found.memory_bytes == pytest.approx(held[place])
        assert held[place] <= choices.limit_bytes * (1 + 1e-9) + 1e-9
        assert least is None or found.time <= least * (1 + 1e-11) + 1
        if least is not None:
            fast = np.array(choices.times) <= least
            fast &= held <= choices.limit_bytes
            assert found.memory_bytes <= held[fast].min(initial=np.inf) * (1 + 1e-11)


@_many
@given(spaces(flat))
def test_plans_cost_what_they_cost(space: Space) -> None:
    """Values and latencies of stages come to the time of a batch that `evaluate` gives."""
    judge, given_problem = Judge(space=space), space.problem
    every = EveryPlan.of(judge)
    for number in range(0, len(every.plans), 1 + len(every.plans) // 10):
        placements = every.plans[number]
        plan = Plan(
            stages=tuple(map(judge.stage, placements)), microbatches=given_problem.microbatches
        )
        context = given_problem.cluster, given_problem.costs, given_problem.pipelining
        assert violations(given_problem.graph, plan, *context) == ()
        price = evaluate(given_problem.graph, plan, *context)
        time = every.values[number] + every.latencies[number]
        seconds = space.batch_seconds(time)
        assert seconds == pytest.approx(price.batch_seconds, rel=1e-11, abs=1000 * space.unit.unit)
        for stage, held in zip(placements, price.stages, strict=True):
            kinds = held.memory_by_kind
            counted = held.memory_bytes - kinds.get("buffers", 0.0) - kinds["reserve"]
            assert judge.memory_bytes(stage) == pytest.approx(counted, abs=1e-9)


@_many
@given(spaces(flat))
def test_memory_of_the_fastest_options(space: Space) -> None:
    """Where it is known without choosing, it is what the choice holds."""
    judge = Judge(space=space)
    stages = [stage for plan in EveryPlan.of(judge).plans[:20] for stage in plan]
    if stages:
        columns = [[getattr(s, name) for s in stages] for name in ("pair", "degree", "in_flight")]
        held = judge.memory_of_fastest(*(np.array(column) for column in columns))
        for stage, amount in zip(stages, held.tolist(), strict=True):
            assert np.isnan(amount) or amount == pytest.approx(judge.memory_bytes(stage))


@given(spaces())
def test_layers_of_a_stage(space: Space) -> None:
    """They are those of the outer downset that are not in the inner one."""
    for pair in range(len(space.pairs)):
        assert layers_of(space, pair).tolist() == rows_of(space, pair)


def test_keeping_to_a_threshold() -> None:
    """What takes exactly the threshold keeps to it, unless it is strict; misfits never do."""
    layer = [option(seconds=3.0, activations=1.0)]
    judge = Judge(space=space_of(problem(chain(layer), memory=4.0)))
    stage = Placement(pair=0, degree=0, in_flight=4, end=1)
    time = judge.value(stage)
    assert time is not None
    assert judge.keeps_to(stage, Threshold(time=time))
    assert not judge.keeps_to(stage, Threshold(time=time, strict=True))
    assert judge.keeps_to(stage, Threshold(time=time + 1, strict=True))
    too_much = replace(stage, in_flight=5)
    assert judge.value(too_much) is judge.latency(too_much) is None
    assert not judge.all_keep_to([stage, too_much], Threshold(time=Fraction(2**62)))


def test_what_is_judged_is_learned() -> None:
    """Each stage that was judged is known from then on, with its number in flight."""
    layer = [option(seconds=3.0, activations=1.0), option("lean", seconds=5.0)]
    judge = Judge(space=space_of(problem(chain(layer), memory=4.0)))
    for in_flight in (4, 5):
        judge.value(Placement(pair=0, degree=0, in_flight=in_flight, end=1))
    longer = judge.lessons.by_setting[0]
    assert longer[0, 4] == 0
    assert longer[0, 5] * judge.space.unit.unit == pytest.approx(2.0)


def test_the_largest_temporary_counts_once() -> None:
    """Two layers of 3 B of temporaries fit into 4 B with 1 B of their own; three at once do not."""
    layer = replace(option(), fixed_memory=FixedMemory(temporary_bytes=3.0, unspecified_bytes=0.5))
    given_problem = problem(chain([layer], [layer]), memory=4.0)
    alone = Placement(pair=1, degree=0, in_flight=1, end=1)
    assert Judge(space=space_of(replace(given_problem, costs=DETAILED))).memory_bytes(alone) == 4.0
    assert Judge(space=space_of(given_problem)).choice(alone) is None


def test_buffers_make_a_stage_larger() -> None:
    """What a stage sends and its gradient take room: twice the bytes of the edge."""
    given_problem = problem(
        chain([option(fixed=2.0)], [option(fixed=2.0)], bytes_between=1.0), devices=2, memory=3.9
    )
    detailed = Judge(space=space_of(replace(given_problem, costs=DETAILED)))
    cut = Placement(pair=0, degree=0, in_flight=1, end=1)
    assert detailed.choice(cut) is None
    assert Judge(space=space_of(given_problem)).memory_bytes(cut) == 2.0
    roomy = replace(given_problem, cluster=given_problem.cluster.with_flat(memory_bytes=4.0))
    assert Judge(space=space_of(replace(roomy, costs=DETAILED))).memory_bytes(cut) == 2.0


def test_sharded_optimizers() -> None:
    """A stage shards its optimizer if it may, has replicas, and its options have some state."""
    heavy = replace(option(), fixed_memory=FixedMemory(optimizer_bytes=2.0))
    for layer, wanted in ((heavy, [False, True]), (option(), [False, False])):
        given_problem = problem(chain([layer]), devices=2, microbatches=2)
        judge = Judge(space=space_of(replace(given_problem, shard_optimizer=True)))
        stages = [
            judge.stage(Placement(pair=0, degree=degree, in_flight=1, end=degree + 1))
            for degree in (0, 1)
        ]
        assert [stage.sharded_optimizer for stage in stages] == wanted


def test_which_choice_is_better() -> None:
    """The faster one; of equally fast ones that which holds less with its temporaries."""
    choice = StageChoice(options=(0,), time=5, memory_bytes=3.0)
    assert choice.is_better_than(replace(choice, time=6), 9.0)
    assert choice.is_better_than(replace(choice, memory_bytes=4.5), 1.0)
    assert not choice.is_better_than(replace(choice, memory_bytes=4.5), 2.0)
