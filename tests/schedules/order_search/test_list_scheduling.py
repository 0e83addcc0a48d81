"""List schedules of a batch."""

from hypothesis import given
from hypothesis import strategies as st

from diaulos.schedules.actions import Kind
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generation.completion import flushed
from diaulos.schedules.order_search.list_scheduling import Chain, Policy, list_schedule
from diaulos.schedules.simulate import simulate
from tests.schedules.shapes import line

seconds = st.integers(1, 9).map(float)
stage_costs = st.builds(
    StageCosts,
    forward_seconds=seconds,
    backward_seconds=seconds.map(lambda value: value + 9),
    weight_backward_seconds=seconds,
    output_bytes=st.just(0.0),
)
policies = st.builds(
    Policy,
    warm_up=st.floats(0, 4),
    patience=st.floats(0, 1),
    forwards_first=st.booleans(),
)


@given(
    costs=st.lists(stage_costs, min_size=1, max_size=5),
    microbatches=st.integers(1, 8),
    latency=st.integers(0, 3),
    limit=st.integers(1, 6),
    policy=policies,
)
def test_it_is_legal_and_counts_its_own_time(
    costs: list[StageCosts], microbatches: int, latency: int, limit: int, policy: Policy
) -> None:
    """Every policy ends, keeps the limits, and takes as long as it says."""
    limits = [limit] * len(costs)
    link = Link(latency_seconds=latency)
    chain = Chain(
        costs=costs, links=[link] * (len(costs) - 1), limits=limits, microbatches=microbatches
    )
    found = list_schedule(chain, policy)
    assert found is not None
    makespan, orders = found
    schedule = flushed(
        "list", line(len(costs), microbatches), range(1), order_of=orders.__getitem__, limits=limits
    )
    check(schedule)
    assert simulate(schedule, costs, link).makespan_seconds == makespan


def first_kinds(policy: Policy, count: int) -> list[Kind]:
    """What the last of two even stages begins with."""
    cost = StageCosts(forward_seconds=1, backward_seconds=2)
    chain = Chain(costs=[cost] * 2, links=[Link()], limits=[4, 4], microbatches=6)
    found = list_schedule(chain, policy)
    assert found is not None
    return [kind for kind, _, _ in found[1][1][:count]]


def test_the_last_stage_turns_at_once() -> None:
    """Its gradient is there when its forward is done, and weight halves wait."""
    policy = Policy(warm_up=1.0, patience=0.0, forwards_first=False)
    assert first_kinds(policy, 3) == [Kind.FORWARD, Kind.INPUT_BACKWARD, Kind.FORWARD]
