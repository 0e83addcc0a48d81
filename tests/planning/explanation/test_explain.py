"""What binds each stage: memory, links, or computation."""

from diaulos.clusters.cluster import Cluster
from diaulos.models.graph import LayerGraph
from diaulos.planning.explanation.explain import Explanation, Limit, explain
from diaulos.planning.plan import Plan
from tests.planning.plans import plan, stage
from tests.planning.problems import chain, option

PAIR = [
    option(seconds=2.0, activations=3.0),
    option("lean", seconds=3.0, activations=1.0, recompute=True),
]


def explained(
    graph: LayerGraph, some: Plan, *, memory: float = 100.0, bandwidth: float = 1.0
) -> Explanation:
    """What is said of a plan on four devices."""
    cluster = Cluster.flat(devices=4, memory_bytes=memory, bandwidth_bytes_per_second=bandwidth)
    return explain(graph, some, cluster)


def test_memory_binds_where_a_faster_option_does_not_fit() -> None:
    """With 5 bytes only one of two layers can keep its activations; the other one is barred."""
    graph = chain(PAIR, PAIR)
    mixed = plan(stage(0, 1, of_1="lean"))
    tight = explained(graph, mixed, memory=5.0).stages[0]
    assert (tight.limit, tight.barred_layers) == (Limit.MEMORY, (1,))

    # With 6 bytes it would fit: nothing but the choice stands in the way.
    loose = explained(graph, mixed, memory=6.0).stages[0]
    assert (loose.limit, loose.barred_layers) == (Limit.COMPUTE, ())


def test_activations_in_flight_count() -> None:
    """What bars an option is all that it would hold: here two microbatches."""
    graph = chain(PAIR, [option(seconds=3.0)])
    two = plan(stage(0, of_0="lean"), stage(1))
    assert explained(graph, two, memory=5.9).stages[0].barred_layers == (0,)
    assert explained(graph, two, memory=6.0).stages[0].barred_layers == ()


def test_a_link_binds_where_it_takes_most_of_the_time() -> None:
    """2 s of computation beside 2 * 4 bytes at 1 byte per second, or at 10."""
    graph = chain([option(seconds=2.0)], [option(seconds=2.0)], bytes_between=4.0)
    two = plan(stage(0), stage(1))
    slow, fast = explained(graph, two), explained(graph, two, bandwidth=10.0)
    assert [told.limit for told in slow.stages] == [Limit.LINK] * 2
    assert slow.stages[0].link_share == 0.8
    assert [told.limit for told in fast.stages] == [Limit.COMPUTE] * 2


def test_stages_wait_for_the_slowest() -> None:
    """A stage waits for what the slowest one takes longer; that one does not wait."""
    graph = chain([option(seconds=2.0)], [option(seconds=5.0)])
    found = explained(graph, plan(stage(0), stage(1)))
    assert [told.waits_seconds for told in found.stages] == [3.0, 0.0]
    assert found.gap.total_seconds == found.evaluation.time_per_sample_seconds == 5.0


def test_a_stage_without_work() -> None:
    """A stage that takes no time at all is explained too."""
    told = explained(chain([option(seconds=0.0)]), plan(stage(0))).stages[0]
    assert (told.limit, told.link_share) == (Limit.COMPUTE, 0.0)
