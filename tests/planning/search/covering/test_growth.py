"""Labels grow within limits: devices, stages, latency, and what other layers need."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.evaluation.pipelining import GPIPE, ONE_F_ONE_B
from diaulos.planning.search.covering.candidates import devices_beyond
from diaulos.planning.search.covering.cover import Cover
from diaulos.planning.search.covering.growth import Limits
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.covering.placement import Judge
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold
from tests.planning.problems import chain, option, problem, problems
from tests.planning.search.spaces import (
    EveryPlan,
    flush_problems,
    single_options,
    size_of,
    space_of,
    spaces,
)

_some = settings(max_examples=60)
FOREVER = Threshold(time=Fraction(2**200))
steady = problems(most_layers=3)
flushed = flush_problems(most_layers=3).filter(lambda p: p.pipelining in (GPIPE, ONE_F_ONE_B))


def cover_of(space: Space, threshold: Threshold, limits: Limits) -> Cover:
    return Cover.of(space, Scope.all_of(space), threshold, Lessons(), limits)


@_some
@given(spaces(flushed.map(single_options)), st.data())
def test_a_latency(space: Space, data: st.DataObject) -> None:
    """Labels that exceed the latency are dropped, and no plan is that keeps to it."""
    every = EveryPlan.of(Judge(space=space))
    if not every.plans:
        return
    most = data.draw(st.sampled_from(sorted(set(every.latencies))))
    limits = Limits(devices=space.devices, latency=float(most) * (1 + 1e-9))
    cover = cover_of(space, FOREVER, limits)
    found = cover.labels.rows.latency[cover.complete()]
    assert found.max() <= limits.latency
    assert found.min() == min(every.latencies)


@_some
@given(spaces(steady.map(single_options)), st.data())
def test_a_number_of_devices(space: Space, data: st.DataObject) -> None:
    """No plan takes more devices than it may, and one that does not is found."""
    every = EveryPlan.of(Judge(space=space))
    devices = data.draw(st.integers(1, space.devices))
    cover = cover_of(space, FOREVER, Limits(devices=devices))
    plan = cover.plan()
    real = [size_of(some) for some in every.plans if some[0].end <= devices]
    assert (plan and size_of(plan)) == min(real, default=None)


@_some
@given(spaces(steady), st.data())
def test_what_is_left_to_other_layers(space: Space, data: st.DataObject) -> None:
    """In no plan under a threshold do the layers outside a downset have fewer devices."""
    every = EveryPlan.of(Judge(space=space))
    times = sorted(set(every.values)) or [Fraction(2**50)]
    threshold = Threshold(time=data.draw(st.sampled_from(times)))
    beyond = devices_beyond(space, Scope.all_of(space), threshold)
    for plan in every.within(threshold.time):
        for stage in plan:
            assert plan[0].end - stage.end >= beyond[space.pairs.outer[stage.pair]]


@pytest.mark.parametrize("keep_ties", [False, True])
def test_ties(keep_ties: bool) -> None:
    """Two replicas of one shard or one of two take as many devices; both stay if ties count."""
    both = [option(seconds=2.0), option(tensor_parallel=2, seconds=1.0)]
    space = space_of(problem(chain(both), devices=2, microbatches=2))
    one = Threshold(time=Fraction(int(space.settings[1].least[0])))
    cover = cover_of(space, one, Limits(devices=2, keep_ties=keep_ties))
    assert cover.labels.rows.total[cover.complete()].tolist() == ([1, 2] if keep_ties else [1])
