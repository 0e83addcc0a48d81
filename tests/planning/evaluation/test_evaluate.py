"""Price and memory of plans, by hand."""

import random
from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.models.graph import FixedMemory, Layer, LayerGraph
from diaulos.planning.evaluation.costs import DETAILED, PIPER, Collective
from diaulos.planning.evaluation.evaluate import StagePrice, evaluate, fits
from diaulos.planning.evaluation.pipelining import (
    GPIPE,
    ONE_F_ONE_B,
    STEADY,
    ZERO_BUBBLE,
    Pipelining,
)
from tests.planning.plans import CLUSTER, graph, plan, stage
from tests.planning.problems import chain, option

INSIDE = Link(bandwidth_bytes_per_second=100.0, latency_seconds=0.25, duplex=True)
BETWEEN = Link(bandwidth_bytes_per_second=10.0, latency_seconds=0.5)
NODES = Cluster(
    groups=(
        DeviceGroup(name="old", nodes=2, devices_per_node=2, memory_bytes=50.0, link=INSIDE),
        DeviceGroup(
            name="new", nodes=1, devices_per_node=4, memory_bytes=80.0, link=INSIDE, speed=2.0
        ),
    ),
    link=BETWEEN,
)


def test_a_stage_pays_for_computation_cut_edges_and_reduction() -> None:
    """The three parts of each stage's time are those of the cost model, computed by hand."""
    first, second = evaluate(graph(), plan(stage(0, d=3), stage(1, 2)), CLUSTER).stages
    assert first.compute_seconds == pytest.approx(4.0 / 3)
    # Edges 0 -> 1 and 0 -> 2, with 1 byte that layer 0 synchronises on the latter.
    assert first.communication_seconds == pytest.approx(2 * (10 + 30 + 1) / 3 / 10)
    assert first.reduction_seconds == pytest.approx(4 * 2 * 8 / 3 / 12 / 10)
    assert first.time_per_sample_seconds == pytest.approx(4 / 3 + 82 / 30 + 64 / 360)
    assert second.compute_seconds == 8.0
    # The same edges, with 2 bytes that layer 2 synchronises; edge 1 -> 2 is not cut.
    assert second.communication_seconds == pytest.approx(2 * (10 + 30 + 2) / 10)
    assert second.reduction_seconds == 0.0


def test_the_slowest_stage_is_the_price_of_the_plan() -> None:
    """The time per sample is the bottleneck's, and each stage's share is its part of it."""
    prices = evaluate(graph(), plan(stage(0), stage(1), stage(2, d=2, t=2)), CLUSTER)
    times = [price.time_per_sample_seconds for price in prices.stages]
    assert prices.time_per_sample_seconds == max(times)
    assert prices.shares_of_bottleneck == tuple(time / max(times) for time in times)
    assert prices.devices_used == 6


def test_memory_counts_microbatches_in_flight() -> None:
    """A stage holds activations of y = ceil(s/d) microbatches, and the rest once."""
    prices = evaluate(graph(), plan(stage(0, d=2), stage(1, d=3), stage(2)), CLUSTER).stages
    assert [price.in_flight for price in prices] == [3, 2, 1]
    assert [price.memory_bytes for price in prices] == [3 * 3.0, 2 * 5.0 + 7.0, 0.0]


def test_memory_is_told_by_kind() -> None:
    """The kinds of fixed memory stay apart, and activations are a kind of their own."""
    memory = FixedMemory(parameters_bytes=1.0, optimizer_bytes=2.0, versions_bytes=0.5)
    layer = Layer(id=0, options=(replace(option(activations=4.0), fixed_memory=memory),))
    prices = evaluate(LayerGraph(layers=(layer,)), plan(stage(0)), CLUSTER).stages
    kinds = {kind: amount for kind, amount in prices[0].memory_by_kind.items() if amount}
    assert kinds == {"parameters": 1.0, "optimizer": 2.0, "versions": 0.5, "activations": 4.0}
    assert prices[0].memory_bytes == 7.5


def test_shares_of_a_plan_that_takes_no_time() -> None:
    """Where everything is free, every stage is the bottleneck."""
    free = LayerGraph(layers=(Layer(id=0, options=(option(seconds=0.0),)),))
    assert evaluate(free, plan(stage(0)), CLUSTER).shares_of_bottleneck == (1.0,)


def test_sums_do_not_depend_on_the_order_of_layers() -> None:
    """Any order of the same layers gives the same time and memory, to the last bit."""
    generator = random.Random(0)
    amounts = [generator.random() * 10 ** generator.randint(-9, 9) for _ in range(50)]
    layers = [
        Layer(id=i, options=(option(seconds=a, activations=a, parameters=a),))
        for i, a in enumerate(amounts)
    ]
    found = set()
    for _ in range(5):
        generator.shuffle(layers)
        ids = [layer.id for layer in layers]
        prices = evaluate(LayerGraph(layers=tuple(layers)), plan(stage(*ids, d=3)), CLUSTER)
        found.add((prices.time_per_sample_seconds, prices.stages[0].memory_bytes))
    assert len(found) == 1


def test_an_option_that_does_not_exist_cannot_be_priced() -> None:
    """The error names the layer, the option, and what there is."""
    with pytest.raises(InputError, match=r"layer 1 has no option 'fat' .* it has 'plain', 'lean'"):
        evaluate(graph(), plan(stage(0, 1, 2, of_1="fat")), CLUSTER)


@pytest.mark.parametrize(("held", "limit"), [(0.1 + 0.2, 0.3), (8.0, 8.0), (0.0, 0.0)])
def test_rounding_does_not_make_memory_overflow(held: float, limit: float) -> None:
    """A sum of decimal sizes that equals the limit fits, though its rounding is larger."""
    assert fits(held, limit)


def test_a_byte_too_much_does_not_fit() -> None:
    """The rounding that is forgiven is no byte of 80 GB."""
    assert not fits(80e9 + 1, 80e9)
    assert not fits(1e-300, 0.0)


def test_a_border_takes_the_link_that_it_crosses() -> None:
    """Inside a node the group's link counts, between nodes the cluster's, on either side."""
    # Layer 0 on device 1, layers 1 and 2 on the same node or on the next.
    near = plan(replace(stage(0), first_device=0), replace(stage(1, 2), first_device=1))
    far = plan(replace(stage(0), first_device=1), replace(stage(1, 2), first_device=2))
    inside = evaluate(graph(), near, NODES).stages
    between = evaluate(graph(), far, NODES).stages
    # Duplex: bytes one way; half duplex: there and back. Without latency, as in Piper's model.
    assert inside[0].communication_seconds == pytest.approx((10 + 30 + 1) / 100)
    assert inside[1].communication_seconds == pytest.approx((10 + 30 + 2) / 100)
    assert between[0].communication_seconds == pytest.approx(2 * (10 + 30 + 1) / 10)
    assert between[1].communication_seconds == pytest.approx(2 * (10 + 30 + 2) / 10)


def test_a_stage_on_two_nodes_pays_between_nodes() -> None:
    """Its borders and its reduction take the cluster's link even where a neighbour is near."""
    spread = plan(replace(stage(0, d=2), first_device=1), replace(stage(1, 2), first_device=3))
    first, second = evaluate(graph(), spread, NODES).stages
    assert first.communication_seconds == pytest.approx(2 * (10 + 30 + 1) / 10 / 2)
    assert first.reduction_seconds == pytest.approx(2 * 2 * 8 / 2 / 12 / 10)
    assert second.communication_seconds == pytest.approx((10 + 30 + 2) / 100)


def test_a_tensor_with_several_consumers_is_sent_once() -> None:
    """The largest of its edges counts, with one latency; without that, each consumer's edge."""
    far = plan(replace(stage(0), first_device=1), replace(stage(1, 2), first_device=2))
    once = evaluate(graph(), far, NODES, DETAILED).stages
    assert once[0].communication_seconds == pytest.approx(2 * 31 / 10 + 2 * 0.5)
    assert once[1].communication_seconds == pytest.approx(2 * 32 / 10 + 2 * 0.5)
    each = evaluate(graph(), far, NODES, replace(DETAILED, shared_tensors_once=False)).stages
    assert each[1].communication_seconds == pytest.approx(2 * (10 + 32) / 10 + 2 * 2 * 0.5)


@pytest.mark.parametrize(
    ("collective", "degree", "seconds"),
    [
        # On devices 4 on, inside a node, duplex: 8 bytes of parameters over 100 bytes/s.
        (Collective.RING, 4, 2 * 3 / 4 * 8 / 100 + 2 * 3 * 0.25),
        (Collective.TREE, 4, 2 * 8 / 100 + 2 * 2 * 0.25),
        (Collective.TREE, 3, 2 * 8 / 100 + 2 * 2 * 0.25),
        (Collective.TREE, 1, 0.0),
        (Collective.RING, 1, 0.0),
    ],
)
def test_reduction_by_ring_and_tree(collective: Collective, degree: int, seconds: float) -> None:
    """Bytes and messages are those of the collective, once per batch of 12 microbatches."""
    alone = plan(replace(stage(0, d=degree), first_device=4))
    costs = replace(DETAILED, collective=collective)
    price = evaluate(graph(), alone, NODES, costs).stages[0]
    assert price.reduction_seconds == pytest.approx(seconds / 12)


def test_fast_devices_compute_faster() -> None:
    """Computation, and what of it can be deferred, is divided by the speed of the group."""
    slow, fast = (
        evaluate(graph(), plan(replace(stage(0, 1, 2), first_device=first)), NODES).stages[0]
        for first in (0, 4)
    )
    assert (slow.compute_seconds, fast.compute_seconds) == (12.0, 6.0)
    assert fast.weight_backward_seconds == slow.weight_backward_seconds / 2
    assert (slow.memory_limit_bytes, fast.memory_limit_bytes) == (50.0, 80.0)


def kinds_of(price: StagePrice) -> dict[str, float]:
    return {kind: amount for kind, amount in price.memory_by_kind.items() if amount}


def test_memory_of_the_detailed_model() -> None:
    """Optimizer over replicas, the largest temporary, buffers and reserve, each by its rule."""
    memory = FixedMemory(parameters_bytes=4.0, optimizer_bytes=8.0, temporary_bytes=3.0)
    layers = [
        [replace(option(activations=1.0), fixed_memory=memory)],
        [replace(option(), fixed_memory=replace(memory, temporary_bytes=5.0))],
        [option()],
    ]
    split = plan(replace(stage(0, 1, d=2), sharded_optimizer=True), stage(2, d=2))
    costs = replace(DETAILED, reserve_bytes=1.5)
    price = evaluate(chain(*layers, bytes_between=10.0), split, CLUSTER, costs).stages[0]
    assert kinds_of(price) == {
        "parameters": 8.0,
        "optimizer": 16.0 / 2,
        "temporary": 5.0,
        "activations": 2.0,
        "buffers": 2 * 10.0,
        "reserve": 1.5,
    }
    assert price.memory_bytes == 44.5
    plain = evaluate(chain(*layers, bytes_between=10.0), split, CLUSTER, PIPER).stages[0]
    assert kinds_of(plain)["temporary"] == 8.0
    assert "buffers" not in kinds_of(plain)


@pytest.mark.parametrize(
    ("pipelining", "in_flight", "versions"),
    [(STEADY, [5, 2, 1], 3.0), (ONE_F_ONE_B, [4, 2, 1], 0.0), (GPIPE, [4, 2, 2], 0.0)],
)
def test_memory_follows_the_schedule(
    pipelining: Pipelining, in_flight: list[int], versions: float
) -> None:
    """Further weight versions count where the schedule has them, activations as it holds them."""
    layer = [replace(option(), fixed_memory=FixedMemory(versions_bytes=3.0))]
    three = plan(stage(0), stage(1, d=2), stage(2, d=2), microbatches=4)
    prices = evaluate(chain(layer, layer, layer), three, CLUSTER, PIPER, pipelining).stages
    assert [price.in_flight for price in prices] == in_flight
    assert [price.memory_by_kind["versions"] for price in prices] == [versions] * 3


def test_a_batch_in_steady_state_is_its_microbatches() -> None:
    """Without a flush a batch takes N times the time per sample."""
    prices = evaluate(graph(), plan(stage(0, d=3), stage(1), stage(2, d=2)), CLUSTER)
    assert prices.batch_seconds == pytest.approx(12 * prices.time_per_sample_seconds, rel=1e-14)


def test_a_batch_with_a_flush_fills_and_drains() -> None:
    """The other stages' microbatch is added once; zero bubble takes two weight backwards off it."""
    layer = [replace(option(seconds=6.0, parameters=8.0), weight_backward_seconds=2.0)]
    two = plan(stage(0), stage(1, d=2), microbatches=4)
    one_f_one_b = evaluate(chain(layer, layer), two, CLUSTER, PIPER, ONE_F_ONE_B)
    # Stage 0: 4 microbatches of 6 s. Stage 1: 2 of 6 s, and 2*8 bytes there and back at 10/s.
    assert one_f_one_b.batch_seconds == pytest.approx(6 + 4 * 6)
    zero_bubble = evaluate(chain(layer, layer), two, CLUSTER, PIPER, ZERO_BUBBLE)
    assert zero_bubble.batch_seconds == pytest.approx((6 - 2 * 2) + 4 * 6)
