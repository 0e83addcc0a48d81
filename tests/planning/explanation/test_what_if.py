"""More devices, more memory, a new plan: each by planning again, against trying all."""

from dataclasses import replace

from hypothesis import assume, given, settings

from diaulos.clusters.cluster import Cluster, DeviceGroup
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.exact import exact
from diaulos.planning.explanation.what_if import FASTER, WhatIf, what_if
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problem, problems

FOUR = problem(
    chain(*[[option(seconds=2.0, fixed=1.0)]] * 4), devices=4, memory=4.0, microbatches=12
)


def asked(given: PlanningProblem, batch_seconds: float | None = None) -> WhatIf:
    """What beats a time, or the best plan there is; of memory, 5 bytes more."""
    if batch_seconds is None:
        evaluation = exact(given).evaluation
        assert evaluation is not None
        batch_seconds = evaluation.batch_seconds
    return what_if(given, batch_seconds, more_memory_bytes=5.0)


@given(problems(most_layers=3))
@settings(max_examples=60, deadline=None)
def test_the_fewest_devices_that_help(given: PlanningProblem) -> None:
    """With the devices that are named a plan is faster, with one less none is."""
    now = exhaustive(given).evaluation
    assume(now is not None)
    assert now is not None
    more = asked(given, now.batch_seconds).more_devices
    tried = given.cluster.devices + 3 if more is None else more.cluster.devices

    for count in range(given.cluster.devices + 1, tried + 1):
        cluster = given.cluster.with_flat(devices=count)
        there = exhaustive(replace(given, cluster=cluster)).evaluation
        assert there is not None
        is_faster = there.batch_seconds < now.batch_seconds * FASTER
        assert is_faster == (more is not None and count == tried)


def test_the_next_number_that_helps() -> None:
    """Four layers of 2 s are no faster on five devices than on four, but on six."""
    found = asked(FOUR)
    assert found.new_plan is None
    assert found.more_devices is not None
    assert found.more_devices.cluster.devices == 6
    assert found.more_memory is None


def test_more_memory() -> None:
    """Where a layer recomputes for want of memory, more memory helps."""
    pair = [option(seconds=2.0, activations=8.0), option("lean", seconds=3.0, recompute=True)]
    found = asked(problem(chain(pair), memory=4.0))
    assert found.more_memory is not None
    assert found.more_memory.batch_seconds == 2.0
    assert found.more_memory.cluster.largest_memory_bytes == 9.0
    assert found.more_devices is None


def test_a_new_plan_on_the_same_devices() -> None:
    """A plan that is not the best is told so; the other changes must beat the best."""
    found = asked(FOUR, 1e3)
    assert found.new_plan is not None
    assert found.new_plan.batch_seconds == 24.0
    assert found.more_devices is not None
    assert found.more_devices.batch_seconds < 24.0


def test_whole_nodes_and_groups() -> None:
    """On nodes devices come in whole ones; with several groups only a new plan is looked for."""
    link = FOUR.cluster.link
    group = DeviceGroup(name="a", nodes=2, devices_per_node=2, memory_bytes=4.0, link=link)
    nodes = replace(FOUR, cluster=Cluster(groups=(group,), link=link))
    more = asked(nodes).more_devices
    assert more is not None
    assert more.cluster.devices == 6

    groups = (replace(group, nodes=1), replace(group, nodes=1, name="b"))
    found = asked(replace(FOUR, cluster=Cluster(groups=groups, link=link)))
    assert (found.more_devices, found.more_memory) == (None, None)
