"""The configurations that are searched use all devices and fit model and batch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.clusters.expression import parse_cluster
from diaulos.errors import InputError
from diaulos.estimating.configuration import Configuration, check_fits
from diaulos.estimating.search.configurations import families, members
from diaulos.estimating.search.demand import Demand
from diaulos.models.operations import Model, Workload
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.options import Recompute
from tests.estimating.models import gpt, published

GPT = gpt(hidden=1536, layers=6, heads=12)


def searched(model: Model, cluster: str, demand: Demand) -> list[Configuration]:
    """All of them."""
    workload = Workload(microbatch_size=1, sequence_length=demand.sequence_length)
    operations, known = model(workload), parse_cluster(cluster)
    found = [
        member
        for family in families(operations, known, demand)
        for member in members(family, operations, known, demand)
    ]
    for chosen in found:
        check_fits(chosen, operations, known)
    return found


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.integers(1, 96),
    st.sampled_from([512, 16_384, 65_536]),
)
def test_they_fit(nodes: int, devices: int, batch_size: int, sequence_length: int) -> None:
    """Each is checked against model and cluster; none stands twice; groups stay in nodes."""
    demand = Demand(batch_size=batch_size, sequence_length=sequence_length)
    found = searched(GPT, f"{nodes}x{devices}xA100-80GB", demand)
    assert len(set(found)) == len(found)
    for chosen in found:
        assert devices % chosen.degrees.tensor == 0
        assert chosen.sequence_parallel == (chosen.degrees.tensor > 1)
        assert chosen.stages <= 6
        assert chosen.microbatches >= 1
        assert chosen.degrees.context == 1 or sequence_length >= 16_384
        if chosen.virtual_stages > 1:
            assert chosen.microbatches % chosen.degrees.pipeline == 0


def test_what_is_not_offered_is_not_searched() -> None:
    """Schedules, recomputation and ZeRO levels are those of the demand."""
    demand = Demand(
        batch_size=16,
        sequence_length=1024,
        schedules=("2bw",),
        recompute=(Recompute.FULL,),
        sharding=(Sharding.NOTHING,),
    )
    found = searched(GPT, "8xA100-80GB", demand)
    assert {chosen.schedule for chosen in found} == {"2bw"}
    assert {chosen.recompute for chosen in found} == {Recompute.FULL}
    assert {chosen.sharding for chosen in found} == {Sharding.NOTHING}
    assert {chosen.degrees.pipeline for chosen in found} == {1, 2, 4}


def test_experts_are_spread() -> None:
    """Over as many devices as divide them, of those of context and data parallelism."""
    found = searched(
        published("mixtral-8x7b"), "2x8xH100-80GB", Demand(batch_size=64, sequence_length=4096)
    )
    assert {chosen.degrees.expert for chosen in found} == {1, 2, 4, 8}


@pytest.mark.parametrize("name", ["batch_size", "sequence_length"])
def test_demands_are_checked(name: str) -> None:
    """A demand for nothing is refused."""
    sizes = {"batch_size": 8, "sequence_length": 8} | {name: 0}
    with pytest.raises(InputError, match=f"{name} is 0"):
        Demand(**sizes)
