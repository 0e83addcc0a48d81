"""What plans are made of: degrees, numbers in flight, budgets of time, and what is least."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.evaluation.pipelining import GPIPE
from diaulos.planning.search.covering.placement import Judge
from diaulos.planning.search.stage_costs.space import Space, build_space
from diaulos.planning.search.stage_costs.threshold import Threshold
from tests.planning.problems import chain, option, problem, problems
from tests.planning.search.spaces import EveryPlan, flush_problems, space_of, spaces

_some = settings(max_examples=80)
flat = st.one_of(problems(most_layers=3), flush_problems(most_layers=3))


@_some
@given(spaces())
def test_degrees_stand_by_setting(space: Space) -> None:
    """Each degree knows its setting, its position there, its devices, and packs one stage."""
    for index, degree in enumerate(space.degrees):
        setting = space.settings[degree.setting].layers.setting
        assert setting.data_degrees[degree.position] == degree.data_parallel
        assert degree.devices == degree.data_parallel * setting.tensor_parallel
        assert space.first_degree[degree.setting] + degree.position == index
        assert divmod(int(space.packed_of[index]), space.weight) == (degree.devices, 1)
    assert space.weight > len(space.problem.graph.layers)


@_some
@given(spaces(), st.integers(1, 12))
def test_numbers_in_flight(space: Space, total: int) -> None:
    """Several at once are what one at a time is, which the schedule says."""
    some = np.arange(len(space.degrees))
    found = space.numbers_in_flight(np.full(len(some), total), some).tolist()
    schedule, microbatches = space.problem.pipelining, space.problem.microbatches
    assert found == [space.in_flight(total, degree) for degree in some.tolist()]
    assert found == [
        schedule.in_flight(total, degree.data_parallel, microbatches) for degree in space.degrees
    ]


@_some
@given(spaces(), st.integers(0, 12), st.data())
def test_last_totals(space: Space, in_flight: int, data: st.DataObject) -> None:
    """It is the largest sum of degrees with at most so many in flight; 0 if there is none."""
    if space.problem.pipelining.defers_weight_backward:
        ends = st.integers(0, space.problem.replicas_limit)
        least, most = sorted((data.draw(ends), data.draw(ends)))
        space = space.limited(least, max(most, 1))
    some = np.arange(len(space.degrees))
    numbers = np.full(len(some), in_flight)
    found = space.last_total(numbers, space.replicas_of)
    totals = range(1, space.replicas_limit + 1)
    wanted = [
        max((s for s in totals if space.in_flight(s, degree) <= in_flight), default=0)
        for degree in some.tolist()
    ]
    assert found.tolist() == wanted


@_some
@given(spaces(), st.data())
def test_budgets(space: Space, data: st.DataObject) -> None:
    """A microbatch keeps to a threshold if and, without a flush, only if it is in the budget."""
    index = data.draw(st.integers(0, len(space.degrees) - 1))
    pair = data.draw(st.integers(0, len(space.pairs) - 1))
    degree, microbatches = space.degrees[index], space.problem.microbatches
    scale = int(space.settings[degree.setting].least[pair]) + 1
    time = Fraction(scale) * data.draw(st.fractions(0, 20, max_denominator=50))
    threshold = Threshold(time=time, strict=data.draw(st.booleans()))
    some = np.array([pair])
    outer, inner = space.pairs.outer[some], space.pairs.inner[some]
    position = np.array([degree.position])
    (budget,) = space.budgets(threshold, degree.setting, outer, inner, position).tolist()

    def value(microbatch: int) -> Fraction:
        per_sample = Fraction(microbatch + space.reduction(pair, index), degree.data_parallel)
        if not space.flushes:
            return per_sample
        return microbatches * per_sample - (microbatch - space.deferred_time(pair, index))

    def keeps(microbatch: int) -> bool:
        found = value(microbatch)
        return found < threshold.time if threshold.strict else found <= threshold.time

    if budget < 2**61:  # No stage takes longer than half of that.
        assert not keeps(max(budget, -1) + 1)
        beyond = budget if not space.flushes else budget - 2 - int(1e-9 * (budget + scale) * 20)
        assert beyond < 0 or keeps(beyond)
    elif microbatches > degree.data_parallel:
        assert keeps(2**60)


@_some
@given(spaces(flat))
def test_no_plan_is_faster_than_the_least_time(space: Space) -> None:
    """Neither time per sample nor, with a flush, that of a batch."""
    every = EveryPlan.of(Judge(space=space))
    times = [sum(time) for time in zip(every.values, every.latencies, strict=True)]
    assert min(times, default=space.least_batch_time) >= space.least_batch_time
    for plan in every.plans:
        work = sum(
            Judge(space=space).microbatch_time(stage)
            * space.degrees[stage.degree].devices
            // space.degrees[stage.degree].data_parallel
            for stage in plan
        )
        assert work >= space.least_work[-1]


def test_times_of_a_batch() -> None:
    """A time that searches compare is of a batch with a flush, of a microbatch without one."""
    steady = problem(chain([option(seconds=3.0)]), microbatches=4)
    for given_problem in (steady, replace(steady, pipelining=GPIPE)):
        space = space_of(given_problem)
        assert space.batch_seconds(space.least_batch_time) == pytest.approx(12.0)


def test_no_space_where_a_layer_fits_nowhere() -> None:
    """A layer that is too large for every device, or has no options at all, leaves no plans."""
    assert build_space(problem(chain([option(fixed=9.0)]), memory=8.0)) is None
    assert build_space(problem(chain([option(fixed=9.0)]), memory=9.0)) is not None
    halves = problem(chain([option(tensor_parallel=2)]), devices=2)
    assert build_space(replace(halves, tensor_parallel=False)) is None


def test_an_order_leaves_downsets_out() -> None:
    """Order edges make downsets fewer and cost nothing."""
    free = problem(chain([option()], [option()]))
    free = replace(free, graph=replace(free.graph, edges=()))
    loose, ordered = build_space(free), build_space(free, [(1, 0)])
    assert loose is not None
    assert ordered is not None
    assert (len(loose.downsets), len(ordered.downsets)) == (4, 3)
    assert ordered.edge_ends == []
