"""The gap to perfect balance: its parts add up, and the bound holds."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from diaulos.clusters.cluster import Cluster, DeviceGroup
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B, STEADY, Pipelining
from diaulos.planning.explanation.gap import Gap, gap_to_balance
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem
from tests.planning.plans import CLUSTER, graph, plan, stage
from tests.planning.problems import chain, detailed_problems, option, problem


def gap_of(
    some: Plan, cluster: Cluster = CLUSTER, pipelining: Pipelining = STEADY, **changes: object
) -> Gap:
    """The gap of a plan of the small graph in Piper's model."""
    layers = changes.get("layers") or graph()
    evaluation = evaluate(layers, some, cluster, pipelining=pipelining)
    return gap_to_balance(layers, some, cluster, evaluation)


def is_nothing(gap: Gap, *but: str) -> bool:
    """Whether all parts but some are zero."""
    return all(seconds == 0 for name, seconds in gap.parts_seconds.items() if name not in but)


@given(detailed_problems())
@settings(max_examples=150, deadline=None)
def test_the_parts_add_up_and_none_is_negative(given: PlanningProblem) -> None:
    """On any cluster, costs and schedule: bound and parts are the time, and the bound holds."""
    result = exhaustive(given)
    assume(result.plan is not None)
    assert result.plan is not None
    assert result.evaluation is not None
    gap = gap_to_balance(given.graph, result.plan, given.cluster, result.evaluation)

    time = result.evaluation.batch_seconds / given.microbatches
    assert gap.total_seconds == pytest.approx(time, rel=1e-9)
    assert min(gap.parts_seconds.values()) >= -1e-9 * time
    # The plan is the best there is, so what it takes is no less than the bound of any.
    assert gap.bound_seconds <= time * (1 + 1e-9)


def test_perfect_balance_has_no_gap() -> None:
    """Two equal layers, nothing to send, one device each: all of the time is least work."""
    layers = chain([option(seconds=2.0)], [option(seconds=2.0)])
    devices = replace(CLUSTER, groups=(replace(CLUSTER.groups[0], devices_per_node=2),))
    gap = gap_of(plan(stage(0), stage(1)), devices, layers=layers)
    assert gap.bound_seconds == gap.total_seconds == 2.0
    assert is_nothing(gap)


def test_each_part_on_its_own() -> None:
    """One stage of recomputation, one of shards, links, and idle devices, by hand."""
    # 4 + 3 + 6 s on one of eight devices; layer 1 recomputes for 1 s.
    gap = gap_of(plan(stage(0, 1, 2, of_1="lean")))
    assert gap.recomputation_seconds == 1 / 8
    assert gap.idle_devices_seconds == 7 / 8 * 13
    assert is_nothing(gap, "recomputation", "idle devices")

    # Layer 2 on two shards takes 2 * 3.5 s for 6; 4 + 2 s before it take 10+20 and 30+... bytes.
    gap = gap_of(plan(stage(0, 1), stage(2, t=2)))
    assert gap.tensor_parallel_seconds == 1 / 8
    assert gap.communication_seconds > 0
    assert gap.imbalance_seconds > 0
    assert is_nothing(gap, "tensor parallelism", "communication", "imbalance", "idle devices")


def test_a_slower_option_is_told_from_recomputation() -> None:
    """An option without recomputation that is not the fastest has its own part."""
    layers = chain([option(seconds=2.0), option("careful", seconds=3.0)])
    gap = gap_of(plan(stage(0, d=8, of_0="careful"), microbatches=8), layers=layers)
    assert gap.slower_options_seconds == 1 / 8
    assert is_nothing(gap, "slower options")


def test_a_flush_adds_fill_and_drain() -> None:
    """With 1F1B a batch of two stages waits for one microbatch more on the other stage."""
    layers = chain([option(seconds=2.0)], [option(seconds=3.0)])
    steady = gap_of(plan(stage(0), stage(1)), layers=layers)
    flushed = gap_of(plan(stage(0), stage(1)), pipelining=ONE_F_ONE_B, layers=layers)
    assert flushed.fill_and_drain_seconds == pytest.approx(2.0 / 12)
    assert replace(flushed, fill_and_drain_seconds=0.0) == steady


def test_devices_count_by_their_speed() -> None:
    """A device of twice the speed has twice the share of the least work."""
    link = CLUSTER.link
    groups = tuple(
        DeviceGroup(
            name=name, nodes=1, devices_per_node=1, memory_bytes=9.0, link=link, speed=speed
        )
        for name, speed in (("slow", 1.0), ("fast", 2.0))
    )
    layers = chain([option(seconds=2.0)], [option(seconds=4.0)])
    gap = gap_of(plan(stage(0), stage(1)), Cluster(groups=groups, link=link), layers=layers)
    assert gap.bound_seconds == gap.total_seconds == 2.0


def test_parts_are_named_once() -> None:
    """Every field but the bound is one of the parts."""
    gap = gap_of(plan(stage(0, 1, 2)))
    assert len(gap.parts_seconds) == len(Gap.__dataclass_fields__) - 1
    assert math.fsum((gap.bound_seconds, *gap.parts_seconds.values())) == gap.total_seconds


def test_the_oracle_never_beats_the_bound() -> None:
    """A layer that is cheaper in two shards than in one has that as its least work."""
    layers = chain([option(seconds=4.0), option("split", tensor_parallel=2, seconds=1.5)])
    result = exhaustive(problem(layers, devices=2, microbatches=2))
    assert result.plan is not None
    assert result.evaluation is not None
    cluster = replace(CLUSTER, groups=(replace(CLUSTER.groups[0], devices_per_node=2),))
    gap = gap_to_balance(layers, result.plan, cluster, result.evaluation)
    assert gap.bound_seconds == gap.total_seconds == 1.5
