"""The answer: the best, others that are better at something, and what being wrong would cost."""

import pytest

from diaulos.clusters.expression import parse_cluster
from diaulos.estimating.search.demand import Demand
from diaulos.estimating.search.planned import Planned, plan_configuration
from tests.estimating.models import published


@pytest.fixture(scope="module")
def planned() -> Planned:
    """Llama 3 with 70 B on 64 devices."""
    demand = Demand(batch_size=1024, sequence_length=8192)
    return plan_configuration(published("llama-3-70b"), parse_cluster("8x8xH100-80GB"), demand)


def test_others_differ_and_are_better_at_something(planned: Planned) -> None:
    """Four others, slower each, with other degrees or ways, and a reason to take them."""
    assert planned.best is not None
    assert len(planned.others) == 4
    slower = [other.slower for other in planned.others]
    assert slower == sorted(slower)
    assert slower[0] >= 0
    assert all(other.less for other in planned.others)
    ways = {
        (one.configuration.degrees, one.configuration.recompute, one.configuration.sharding == 3)
        for one in (planned.best, *(other.estimate for other in planned.others))
    }
    assert len(ways) == 5


def test_less_memory_means_so(planned: Planned) -> None:
    """Who is said to need less memory needs at most nine tenths of the best's."""
    assert planned.best is not None
    for other in planned.others:
        has_less = other.estimate.memory_bytes <= 0.9 * planned.best.memory_bytes
        assert ("memory" in other.less) is has_less


def test_doubts(planned: Planned) -> None:
    """Nothing is faster on a slower cluster, and then the best of the five is no slower."""
    assert planned.best is not None
    assert len(planned.doubts) == 4
    for doubt in planned.doubts:
        assert doubt.step_seconds >= planned.best.step_seconds * (1 - 1e-9)
        if doubt.fits:
            assert doubt.regret >= 0
            assert (doubt.best == 0) is (doubt.best_seconds == doubt.step_seconds)


def test_nothing_fits() -> None:
    """The one that lacks least is named."""
    demand = Demand(batch_size=8, sequence_length=8192)
    found = plan_configuration(published("llama-3-70b"), parse_cluster("4xA100-40GB"), demand)
    assert found.best is None
    assert found.others == found.doubts == ()
    assert found.leanest is not None
    assert found.leanest[1] > 40e9
