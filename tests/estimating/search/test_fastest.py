"""What comes out fits, fastest first, and nothing that is left out is faster."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster
from diaulos.clusters.expression import parse_cluster
from diaulos.estimating.estimate import Estimate, draft
from diaulos.estimating.pipeline import Simulators
from diaulos.estimating.search.configurations import families, members
from diaulos.estimating.search.demand import Demand
from diaulos.estimating.search.fastest import Search
from diaulos.estimating.search.promise import least_memory_bytes, least_step_seconds
from diaulos.models.operations import Model
from diaulos.pricing.analytic.options import Recompute
from tests.estimating.models import gpt, published

DEEP = gpt(hidden=4096, layers=7, heads=32)
SMALL = Demand(batch_size=32, sequence_length=2048, recompute=(Recompute.NONE, Recompute.SELECTIVE))


def short_of_memory(gigabytes: float) -> Cluster:
    """Eight A100s with less memory than they have."""
    known = parse_cluster("2x4xA100-80GB")
    (group,) = known.groups
    return replace(known, groups=(replace(group, memory_bytes=gigabytes * 1e9),))


def everything(model: Model, cluster: Cluster, demand: Demand) -> list[Estimate]:
    """Estimates of all configurations with even shares of blocks, those that do not fit too."""
    search, simulators, found = Search(model, cluster, demand), Simulators(), []
    one = search.operations(1)
    for family in families(one, cluster, demand):
        for member in members(family, one, cluster, demand):
            drafted = draft(search.operations(member.microbatch_size), cluster, member)
            finished = drafted.finished(simulators)
            assert least_step_seconds(drafted) <= finished.step_seconds * (1 + 1e-12)
            assert least_memory_bytes(drafted) <= finished.memory_bytes + finished.driver_bytes
            found.append(finished)
    return found


@pytest.mark.parametrize("gigabytes", [80, 20, 9])
@pytest.mark.parametrize("schedules", [("1f1b", "interleaved", "zero-bubble"), ("2bw",)])
def test_nothing_is_faster(gigabytes: float, schedules: tuple[str, ...]) -> None:
    """Bounds hold for all configurations, and none that fits is faster than the first."""
    cluster, demand = short_of_memory(gigabytes), replace(SMALL, schedules=schedules)
    every = everything(DEEP, cluster, demand)
    fitting = [one.step_seconds for one in every if one.fits]
    search = Search(DEEP, cluster, demand)
    found = list(search.fastest_first())
    assert search.configurations == len(every)
    assert all(one.fits for one in found)
    seconds = [one.step_seconds for one in found]
    assert seconds == pytest.approx(sorted(seconds), rel=1e-12)
    assert len(found) >= len(fitting)
    nearly = 1 + 1e-12
    assert (seconds[0] <= min(fitting) * nearly) if fitting else (search.leanest is not None)


def test_few_are_simulated() -> None:
    """Most configurations of a large model are left out by their bounds."""
    demand = Demand(batch_size=512, sequence_length=4096)
    search = Search(published("llama-3-8b"), parse_cluster("4x8xH100-80GB"), demand)
    assert next(iter(search.fastest_first())).fits
    assert search.simulated < search.configurations / 10


def test_blocks_make_room_for_the_head() -> None:
    """With a large vocabulary the last stage gets fewer blocks, and a step is faster for it."""
    model = gpt(hidden=2048, layers=16, heads=16, vocabulary=256_000)
    demand = Demand(
        batch_size=64, sequence_length=2048, schedules=("1f1b",), recompute=(Recompute.NONE,)
    )
    found = Search(model, parse_cluster("4xA100-80GB"), demand).fastest_first()
    best = next(one for one in found if one.configuration.degrees.pipeline == 4)
    shares = best.configuration.blocks_per_stage
    assert shares is not None
    assert shares[-1] == min(shares) < 4
    even = replace(best.configuration, blocks_per_stage=None)
    simulators = Simulators()
    assert (
        best.step_seconds
        < draft(best.operations, best.cluster, even).finished(simulators).step_seconds
    )
