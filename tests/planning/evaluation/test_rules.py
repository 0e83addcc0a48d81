"""Every rule that a plan can break, as a sentence."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.planning.evaluation.costs import DETAILED
from diaulos.planning.evaluation.pipelining import GPIPE
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.plan import Plan
from tests.planning.plans import CLUSTER, graph, plan, stage


def test_a_valid_plan_breaks_no_rule() -> None:
    """Nothing is said about a plan that keeps to all rules."""
    assert violations(graph(), plan(stage(0, 1, of_1="lean"), stage(2, t=2)), CLUSTER) == ()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (plan(stage(0, 1)), "layer 2 (head) stands in no stage; put it into stage 0"),
        (plan(stage(0, 1), stage(1, 2)), "layer 1 stands in 2 stages: [0, 1]"),
        (plan(stage(0, 1, 2, 9)), "layer 9 stands in the plan but not in the graph"),
        (
            plan(stage(1), stage(0, 2)),
            "layer 0 in stage 1 feeds layer 1 in the earlier stage 0",
        ),
        (plan(stage(0, 2, 1)), "stage 0 lists layer 2 (head) before layer 1, which feeds it"),
        (
            plan(stage(0, 2), stage(1)),
            "layer 1 in stage 1 feeds layer 2 (head) in the earlier stage 0",
        ),
        (
            plan(stage(0, 1, 2, d=5)),
            (
                "stage 0 has data-parallel degree 5, which does not divide the 12 microbatches; "
                "4 and 6 do"
            ),
        ),
        (
            plan(stage(0, 1, 2, d=12)),
            "the stages take 12 devices, the cluster has 8; use smaller degrees or fewer stages",
        ),
        (
            plan(stage(0, d=2), stage(1), stage(2), microbatches=2),
            (
                "the data-parallel degrees sum up to 4, more than the 2 microbatches or the 8 "
                "devices; use smaller ones"
            ),
        ),
        (
            plan(stage(0, 1, 2, of_1="fat")),
            (
                "stage 0: layer 1 has no option 'fat' at tensor-parallel degree 1; "
                "it has 'plain', 'lean'"
            ),
        ),
        (
            plan(stage(0, 1, t=2), stage(2, t=2)),
            (
                "stage 0 has tensor-parallel degree 2, at which layer 0 and 1 more has no option; "
                "all of its layers have 1"
            ),
        ),
    ],
)
def test_each_broken_rule_is_a_sentence(broken: Plan, sentence: str) -> None:
    """Each rule, when it is broken, is told in words that name the stage and the layer."""
    assert sentence in violations(graph(), broken, CLUSTER)


def test_memory_over_the_limit_is_told_in_bytes() -> None:
    """A stage that does not fit is named, with the bytes that are too many."""
    small = CLUSTER.with_flat(memory_bytes=10.0)
    assert violations(graph(), plan(stage(0), stage(1), stage(2)), small) == (
        (
            "stage 1 holds 17 bytes on each device, 7 bytes (7 B) more than the limit of 10; even "
            "with the options of least memory it holds 11 B: move layers to other stages"
        ),
    )


def test_every_broken_rule_is_told() -> None:
    """One plan that breaks several rules gets a sentence for each."""
    broken = plan(stage(1, d=5, of_1="fat"), stage(0, d=5), microbatches=12)
    assert len(violations(graph(), broken, CLUSTER)) == 7


LINK = Link(bandwidth_bytes_per_second=10.0)
NODES = Cluster(
    groups=(
        DeviceGroup(name="old", nodes=2, devices_per_node=2, memory_bytes=16.0, link=LINK),
        DeviceGroup(name="new", nodes=1, devices_per_node=4, memory_bytes=80.0, link=LINK),
    ),
    link=LINK,
)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (
            plan(replace(stage(0, 1), first_device=7), replace(stage(2, d=2), first_device=8)),
            "stage 1 stands on devices 8 to 9, the cluster has 8",
        ),
        (
            plan(replace(stage(0, 1, d=2), first_device=3), replace(stage(2), first_device=5)),
            "stage 0 stands in two groups of devices, old and new",
        ),
        (
            plan(replace(stage(0, 1), first_device=0), replace(stage(2, t=2), first_device=1)),
            ("stage 1 has a tensor-parallel group on devices 1 to 2, which are in different nodes"),
        ),
        (
            plan(replace(stage(0, 1, d=2), first_device=4), replace(stage(2), first_device=5)),
            "stage 0 ends on device 5, stage 1 starts on device 5, not behind it",
        ),
        (
            plan(replace(stage(0, 1), first_device=4), replace(stage(2), first_device=0)),
            "stage 0 ends on device 4, stage 1 starts on device 0, not behind it",
        ),
        (
            plan(stage(0, 1, d=6), stage(2)),
            (
                "stage 0 finds no 6 devices from device 0 on; the cluster has 8; a stage lies in "
                "one group of devices, and each of its tensor-parallel groups in one node; "
                "use smaller degrees"
            ),
        ),
    ],
)
def test_each_broken_place_is_a_sentence(broken: Plan, sentence: str) -> None:
    """Where stages cannot stand is told with the stage and the devices."""
    assert sentence in violations(graph(), broken, NODES)


def test_the_limit_is_that_of_the_group() -> None:
    """The same stage is too much for one group and not for another."""
    on_old = plan(replace(stage(0, 1), first_device=0), replace(stage(2), first_device=1))
    on_new = plan(replace(stage(0, 1), first_device=4), replace(stage(2), first_device=5))
    # 2 microbatches of 3 + 5 bytes in flight, and 7 bytes.
    assert violations(graph(), on_old, NODES) == (
        (
            "stage 0 holds 23 bytes on each device, 7 bytes (7 B) more than the limit of 16; even "
            "with the options of least memory it holds 17 B: move layers to other stages"
        ),
    )
    assert violations(graph(), on_new, NODES) == ()


def test_memory_is_that_of_the_costs_and_the_schedule() -> None:
    """Buffers, and all microbatches of a batch in flight, can be too much."""
    whole = plan(replace(stage(0, 1), first_device=4), replace(stage(2), first_device=5))
    assert violations(graph(), whole, NODES, pipelining=GPIPE)[0].startswith(
        "stage 0 holds 103 bytes"
    )
    # 2 * (20 + 31) bytes of buffers beside the 23.
    assert violations(graph(), whole, NODES, DETAILED)[0].startswith("stage 0 holds 125 bytes")
