"""Price and memory of plans, by hand; and every rule that a plan can break."""

import random
from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph
from diaulos.planning.evaluate import evaluate, fits
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.rules import violations
from tests.planning.problems import option

CLUSTER = Cluster.flat(devices=8, memory_bytes=100.0, bandwidth_bytes_per_second=10.0)


def graph() -> LayerGraph:
    """0 -> 1 -> 2 and 0 -> 2, at degrees 1 and 2."""
    layers = (
        Layer(
            id=0, options=(option(seconds=4.0, parameters=8.0, activations=3.0, sends={2: 1.0}),)
        ),
        Layer(
            id=1,
            options=(
                option(seconds=2.0, activations=5.0, fixed=7.0),
                option("lean", seconds=3.0, activations=1.0, fixed=9.0, recompute=True),
            ),
        ),
        Layer(
            id=2,
            name="head",
            options=(
                option(seconds=6.0, receives={0: 2.0, 1: 4.0}),
                option(tensor_parallel=2, seconds=3.5, parameters=16.0),
            ),
        ),
    )
    edges = (
        Edge(source=0, target=1, bytes=10.0),
        Edge(source=1, target=2, bytes=20.0),
        Edge(source=0, target=2, bytes=30.0),
    )
    return LayerGraph(layers=layers, edges=edges)


def stage(*layers: int, d: int = 1, t: int = 1, **names: str) -> Stage:
    options = {layer: names.get(f"of_{layer}", "plain") for layer in layers}
    return Stage(layers=layers, data_parallel=d, tensor_parallel=t, options=options)


def plan(*stages: Stage, microbatches: int = 12) -> Plan:
    return Plan(stages=stages, microbatches=microbatches)


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


def test_a_valid_plan_breaks_no_rule() -> None:
    """Nothing is said about a plan that keeps to all rules."""
    assert violations(graph(), plan(stage(0, 1, of_1="lean"), stage(2, t=2)), CLUSTER) == ()


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (plan(stage(0, 1)), "layer 2 (head) stands in no stage"),
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
            "stage 0 has data-parallel degree 5, which does not divide the 12 microbatches",
        ),
        (
            plan(stage(0, 1, 2, d=12)),
            "the stages take 12 devices, the cluster has 8",
        ),
        (
            plan(stage(0, d=2), stage(1), stage(2), microbatches=2),
            "the data-parallel degrees sum up to 4, more than the 2 microbatches or the 8 devices",
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
                "stage 0: layer 0 has no option 'plain' at tensor-parallel degree 2; "
                "it has none at this degree"
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
        "stage 1 holds 17 bytes on each device, 7 bytes (7 B) more than the limit of 10",
    )


def test_every_broken_rule_is_told() -> None:
    """One plan that breaks several rules gets a sentence for each."""
    broken = plan(stage(1, d=5, of_1="fat"), stage(0, d=5), microbatches=12)
    assert len(violations(graph(), broken, CLUSTER)) == 7


@pytest.mark.parametrize(("held", "limit"), [(0.1 + 0.2, 0.3), (8.0, 8.0), (0.0, 0.0)])
def test_rounding_does_not_make_memory_overflow(held: float, limit: float) -> None:
    """A sum of decimal sizes that equals the limit fits, though its rounding is larger."""
    assert fits(held, limit)


def test_a_byte_too_much_does_not_fit() -> None:
    """The rounding that is forgiven is no byte of 80 GB."""
    assert not fits(80e9 + 1, 80e9)
    assert not fits(1e-300, 0.0)
