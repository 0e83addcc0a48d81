"""What it would take: the least memory and the fewest devices, against trying all plans."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from diaulos.clusters.cluster import Cluster, DeviceGroup
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.exact import exact
from diaulos.planning.explanation.infeasibility import MEMORY_PRECISION, explain_infeasibility
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problem, problems
from tests.planning.reference import needs_reference, piper_file, problem_of


def fits_on(given: PlanningProblem, **changes: float) -> bool:
    """Whether some plan keeps to other limits, by trying all."""
    cluster = given.cluster.with_flat(**changes)
    return exhaustive(replace(given, cluster=cluster)).plan is not None


@given(problems(most_layers=4))
@settings(max_examples=80, deadline=None)
def test_what_would_do_does_and_nothing_less(given: PlanningProblem) -> None:
    """The memory and the devices that are named allow a plan, and less of either does not."""
    given = replace(given, cluster=given.cluster.with_flat(memory_bytes=3.0))
    assume(exact(given).plan is None)
    found = explain_infeasibility(given)
    assert found is not None

    least, fewest = found.least_memory_bytes, found.fewest_devices
    if least is None:
        assert not fits_on(given, memory_bytes=1e12)
    else:
        assert fits_on(given, memory_bytes=least)
        assert not fits_on(given, memory_bytes=least * (1 - 2 * MEMORY_PRECISION))
    if fewest is None:
        assert not fits_on(given, devices=2 * given.microbatches)
    else:
        assert fits_on(given, devices=fewest)
        assert not fits_on(given, devices=fewest - 1)


@needs_reference
def test_bert_on_too_little() -> None:
    """BERT-32 does not fit on 64 devices of 1 GiB; what is said of it holds by planning again."""
    tight = problem_of(piper_file("bert32a100.json"), {"K": "64", "memGiB": "1"}, 1920)
    found = explain_infeasibility(tight)
    assert found is not None
    assert found.least_memory_bytes is not None
    assert found.fewest_devices == 83

    for changes, fits in (
        ({"memory_bytes": found.least_memory_bytes}, True),
        ({"memory_bytes": found.least_memory_bytes - 10}, False),
        ({"devices": 83}, True),
        ({"devices": 82}, False),
    ):
        result = exact(replace(tight, cluster=tight.cluster.with_flat(**changes)))
        assert (result.plan is not None) == fits


def test_the_best_attempt_names_stage_layer_and_bytes() -> None:
    """Of two devices one must take two layers; the largest of them and what lacks are named."""
    layers = [
        [option(fixed=4.0)],
        [option(fixed=1.0, activations=2.0)],
        [option(fixed=5.0)],
    ]
    found = explain_infeasibility(problem(chain(*layers), devices=2, memory=5.5, microbatches=2))
    assert found is not None
    assert found.shortage is not None

    # 4 | 1+2, 5 needs 8 bytes; 4, 1 + 2*2 | 5 needs 9 with two microbatches in flight.
    assert (found.least_memory_bytes, found.fewest_devices) == (8.0, None)
    assert (found.shortage.stage, found.shortage.layer, found.shortage.layer_bytes) == (1, 2, 5.0)
    assert found.shortage.missing_bytes == 2.5
    assert found.shortage.memory_by_kind["activations"] == 2.0


def test_a_layer_that_fits_nowhere() -> None:
    """Where one layer alone is too large, no number of devices would do."""
    found = explain_infeasibility(problem(chain([option(fixed=9.0)]), devices=3, memory=8.0))
    assert found is not None
    assert (found.least_memory_bytes, found.fewest_devices) == (9.0, None)


def test_a_layer_without_options() -> None:
    """Where a layer has no option at any degree that is allowed, no memory would do."""
    split = problem(
        chain([option(tensor_parallel=2)]), devices=4, microbatches=2, tensor_parallel=False
    )
    found = explain_infeasibility(split)
    assert found is not None
    assert (found.least_memory_bytes, found.fewest_devices, found.shortage) == (None, None, None)


def nodes(*counts: int) -> Cluster:
    """Groups of nodes of two devices with 4 bytes."""
    link = problem(chain([option()])).cluster.link
    groups = [
        DeviceGroup(name=f"{i}", nodes=n, devices_per_node=2, memory_bytes=4.0, link=link)
        for i, n in enumerate(counts)
    ]
    return Cluster(groups=tuple(groups), link=link)


@pytest.mark.parametrize(("layers", "devices"), [(5, 6), (7, 8)])
def test_devices_come_in_nodes(layers: int, devices: int) -> None:
    """On a cluster of nodes the fewest devices fill whole nodes."""
    graph = chain(*[[option(fixed=3.0)]] * layers)
    given = replace(problem(graph, microbatches=8), cluster=nodes(2))
    found = explain_infeasibility(given)
    assert found is not None
    assert found.fewest_devices == devices


def test_several_groups_are_not_explained() -> None:
    """With devices of several kinds there is no one memory and no one number to name."""
    given = replace(problem(chain([option(fixed=9.0)])), cluster=nodes(1, 1))
    assert explain_infeasibility(given) is None
