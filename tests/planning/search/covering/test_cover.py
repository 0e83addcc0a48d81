"""Covers find the labels of all plans under a threshold, proven by enumeration."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.planning.evaluation.pipelining import GPIPE, ONE_F_ONE_B
from diaulos.planning.search.covering import cover as cover_module
from diaulos.planning.search.covering.cover import Cover, by_size
from diaulos.planning.search.covering.growth import Limits
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.covering.placement import Judge
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold
from tests.planning.problems import problems
from tests.planning.search.spaces import (
    EveryPlan,
    flush_problems,
    single_options,
    size_of,
    spaces,
)

_some = settings(max_examples=60)
steady = problems(most_layers=3)
flushed = flush_problems(most_layers=3).filter(lambda p: p.pipelining in (GPIPE, ONE_F_ONE_B))


def cover_of(space: Space, threshold: Threshold, *, surely: bool = False) -> Cover:
    limits = Limits(devices=space.devices, surely=surely)
    return Cover.of(space, Scope.all_of(space), threshold, Lessons(), limits)


def some_threshold(every: EveryPlan, data: st.DataObject) -> Threshold:
    times = sorted(set(every.values)) or [Fraction(2**50)]
    return Threshold(time=data.draw(st.sampled_from(times)), strict=data.draw(st.booleans()))


@_some
@given(spaces(steady), st.data())
def test_the_smallest_plan_under_a_threshold(space: Space, data: st.DataObject) -> None:
    """Relaxed stages need no more devices and stages than real plans, sure ones no fewer."""
    judge = Judge(space=space)
    every = EveryPlan.of(judge)
    threshold = some_threshold(every, data)
    sizes = [size_of(p) for p in every.within(threshold.time, strict=threshold.strict)]
    relaxed = cover_of(space, threshold).plan()
    if sizes:
        assert relaxed is not None
        assert size_of(relaxed) <= min(sizes)
    sure = cover_of(space, threshold, surely=True).plan()
    if sure is not None:
        assert judge.all_keep_to(sure, threshold)
        assert size_of(sure) >= min(sizes)


@_some
@given(spaces(steady.map(single_options)), st.data())
def test_with_one_option_each_nothing_is_relaxed(space: Space, data: st.DataObject) -> None:
    """There is a plan if and only if there is one, and it is the smallest."""
    every = EveryPlan.of(Judge(space=space))
    threshold = some_threshold(every, data)
    sizes = [size_of(p) for p in every.within(threshold.time, strict=threshold.strict)]
    plan = cover_of(space, threshold).plan()
    assert (plan and size_of(plan)) == min(sizes, default=None)


@_some
@given(spaces(flushed), st.data())
def test_the_least_latency_under_a_threshold(space: Space, data: st.DataObject) -> None:
    """With a flush the labels of all layers promise no more latency than any real plan."""
    every = EveryPlan.of(Judge(space=space))
    threshold = some_threshold(every, data)
    kept = set(every.within(threshold.time, strict=threshold.strict))
    real = [
        latency for plan, latency in zip(every.plans, every.latencies, strict=True) if plan in kept
    ]
    cover = cover_of(space, threshold)
    labels = cover.complete()
    found = cover.labels.rows.latency[labels]
    if real:
        assert found.min() <= min(real)


@_some
@given(spaces(st.one_of(steady, flushed)), st.data())
def test_stages_that_can_still_matter(space: Space, data: st.DataObject) -> None:
    """All stages of all plans under the threshold are kept, with what plans need at least."""
    every = EveryPlan.of(Judge(space=space))
    threshold = some_threshold(every, data)
    plans = every.within(threshold.time, strict=threshold.strict)
    if not plans:
        return
    scope = cover_of(space, threshold).scope()
    assert all((np.diff(pairs) > 0).all() for pairs in scope.pairs)
    for plan in plans:
        for stage in plan:
            assert stage.pair in scope.pairs[space.degrees[stage.degree].setting]
        total = 0
        for stage in reversed(plan):
            outer, inner = space.pairs.outer[stage.pair], space.pairs.inner[stage.pair]
            degree = space.degrees[stage.degree]
            assert scope.least_devices[inner] <= stage.end - degree.devices
            assert scope.devices_beyond[outer] <= plan[0].end - stage.end
            assert scope.least_total[inner] <= total
            total += degree.data_parallel


@_some
@given(spaces(), st.data())
def test_labels_stand_for_their_stages(space: Space, data: st.DataObject) -> None:
    """A label's stages run all its layers once; their degrees and number are what it says."""
    time = Fraction(data.draw(st.integers(space.least_time, 8 * space.least_time + 8)))
    cover = cover_of(space, Threshold(time=time))
    rows = cover.labels.rows
    for label in range(cover.labels.first, len(cover.labels)):
        stages = cover.placements(label)
        assert space.pairs.outer[stages[0].pair] == rows.downset[label]
        assert space.pairs.inner[stages[-1].pair] == 0
        for stage, following in pairwise(stages):
            assert space.pairs.inner[stage.pair] == space.pairs.outer[following.pair]
            assert stage.end - following.end >= space.degrees[stage.degree].devices
        degrees = [space.degrees[stage.degree].data_parallel for stage in stages]
        assert rows.total[label] == sum(degrees)
        devices, depth = divmod(int(rows.packed[label]), space.weight)
        assert depth == len(stages)
        # On nodes the first stage may leave idle what is left of its node.
        assert stages[0].end == devices or not space.problem.cluster.is_flat
        assert stages[0].end <= devices
        assert stages[0] == cover.placement(label)


@_some
@given(spaces())
def test_candidates_by_size(space: Space) -> None:
    """They come back from the largest outer downsets to the smallest, each once."""
    cover = cover_of(space, Threshold(time=Fraction(2**61)))
    parts = list(by_size(space, cover.candidates))
    sizes = [set(space.level_of[part.outer].tolist()) for part in parts]
    assert all(len(size) == 1 for size in sizes)
    assert [max(size) for size in sizes] == sorted({max(s) for s in sizes}, reverse=True)
    assert sum(map(len, parts)) == len(cover)


@_some
@given(spaces())
def test_blocks(space: Space) -> None:
    """However few pairs are judged at once, the labels are the same."""
    threshold = Threshold(time=Fraction(4 * space.least_time + 4))
    whole = cover_of(space, threshold).labels.rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover_module, "_PAIRS_AT_ONCE", 3)
        assert np.array_equal(cover_of(space, threshold).labels.rows.data[:4], whole.data[:4])
