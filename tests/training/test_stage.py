"""Stages as modules, and the plan's layers placed in them."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.dropout import Dropout
from diaulos.models.gpt import gpt
from diaulos.models.layers import LayerSpec
from diaulos.training.stage import PlacedLayer, StageModule, place_layers
from tests.training.toy import CONFIG, RandomTokens, graph_of, plan_of

MODEL = gpt(CONFIG)
LAYERS = len(MODEL.layers)


def test_any_split_starts_from_the_same_weights():
    """A parameter has the same start value in every split, and another than any other layer's."""
    whole = dict(StageModule(_placed((1,))[0], 3).named_weights())
    for replicas in ((1, 1), (1, 1, 1, 1)):
        for stage in _placed(replicas):
            for name, weight in StageModule(stage, 3).named_weights():
                assert torch.equal(whole[name], weight)
    first, second = (whole[f"block_{i}.attention.query.weight"] for i in range(2))
    assert not torch.equal(first, second)


def _placed(replicas, **changes):
    return place_layers(MODEL, graph_of(MODEL), plan_of(LAYERS, replicas, 4, **changes))


def test_stages_compose_to_the_model():
    """The stages one after another give what the whole gives, to the bit."""
    inputs, _ = RandomTokens()(0, 0)
    stream = (inputs,)
    for stage in _placed((1, 1, 1)):
        stream = StageModule(stage, 0)(stream, 0)

    (expected,), (hidden,) = StageModule(_placed((1,))[0], 0)((inputs,), 0), stream
    assert torch.equal(expected, hidden)


def test_recomputation_follows_the_options_of_the_plan():
    """A layer is recomputed exactly where its option in the graph says so."""
    plan = plan_of(LAYERS, (1, 1), 4)
    stage = replace(plan.stages[0], options={**plan.stages[0].options, 1: "recompute"})
    placed = place_layers(MODEL, graph_of(MODEL), replace(plan, stages=(stage, plan.stages[1])))

    assert [False, True] == [layer.recompute for layer in placed[0]]
    assert [False, False] == [layer.recompute for layer in placed[1]]


def test_a_graph_of_another_model_is_refused():
    """The names of the graph's layers must be those of the model."""
    other = gpt(replace(CONFIG, layers=3))
    with pytest.raises(InputError, match="the graph is not that of the model"):
        place_layers(MODEL, graph_of(other), plan_of(LAYERS + 1, (1,), 4))


def test_a_plan_that_loses_a_layer_is_refused():
    """Each layer stands in one stage, in the order of the model."""
    with pytest.raises(InputError, match=r"the plan's stages hold the layers \[0, 1, 2\]"):
        place_layers(MODEL, graph_of(MODEL), plan_of(LAYERS - 1, (1,), 4))


def test_degrees_that_do_not_divide_are_refused():
    """The layer, what it has, and the degree are named, with degrees that would do."""
    plan = plan_of(LAYERS, (1, 1), 4, shards=(1, 3))
    with pytest.raises(InputError, match=r"layer block_1 has 2 heads, and its .* degree 3.* 1, 2"):
        place_layers(MODEL, graph_of(MODEL), plan)


def test_positions_that_do_not_divide_are_refused_under_sequence_parallelism():
    """Each shard has as many positions as any other."""
    model = gpt(replace(CONFIG, sequence_length=7))
    for sequence_parallel in (False, True):
        plan = plan_of(LAYERS, (1,), 4, shards=(2,), sequence_parallel=sequence_parallel)
        if not sequence_parallel:
            place_layers(model, graph_of(model), plan)
            continue
        with pytest.raises(InputError, match="layer block_0 has 7 positions"):
            place_layers(model, graph_of(model), plan)


def test_layers_that_do_not_say_how_they_are_split_are_refused():
    """The trainer names the layer, and how to plan without it."""
    model = replace(
        MODEL, layers=(*MODEL.layers[:-1], replace(MODEL.layers[-1], tensor_split=None))
    )
    with pytest.raises(InputError, match=r"layer head stands in .* plan with --no-tensor-parallel"):
        place_layers(model, graph_of(model), plan_of(LAYERS, (1,), 4, shards=(2,)))


@pytest.mark.parametrize("recompute", [False, True])
def test_dropout_depends_on_seed_microbatch_and_layer_alone(recompute):
    """Masks are those of any split and of recomputation, and other ones elsewhere."""
    config = replace(CONFIG, dropout=0.5)
    model = gpt(config)
    plan = plan_of(LAYERS, (1, 1), 4, recompute=recompute)
    stages = [StageModule(stage, 0) for stage in place_layers(model, graph_of(model), plan)]
    whole = StageModule(place_layers(model, graph_of(model), plan_of(LAYERS, (1,), 4))[0], 0)
    inputs, _ = RandomTokens()(0, 0)
    torch.rand(3)
    (hidden,) = stages[1](stages[0]((inputs,), 5), 5)
    (expected,) = whole((inputs,), 5)
    hidden.sum().backward()
    expected.sum().backward()

    assert torch.equal(expected, hidden)
    for stage in stages:
        for name, parameter in stage.named_weights():
            assert torch.equal(dict(whole.named_weights())[name].grad, parameter.grad)
    assert not torch.equal(expected, whole((inputs,), 6)[0])
    whole.seed = 1
    assert not torch.equal(expected, whole((inputs,), 5)[0])


def test_layers_that_are_alike_drop_differently():
    """The name of a layer is part of what decides."""
    masks = [
        StageModule(
            [PlacedLayer(spec=LayerSpec(name=name, build=partial(Dropout, 0.5)), recompute=False)],
            0,
        )
        for name in "ab"
    ]

    assert not torch.equal(*(module((torch.ones(100),), 0)[0] for module in masks))


def test_forwards_leave_the_random_state_alone():
    """Dropout draws nothing from the random numbers of others."""
    module = StageModule(_placed((1,))[0], 0)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    module((RandomTokens()(0, 0)[0],), 0)

    assert torch.equal(expected, torch.rand(2))


def test_tied_parameters_start_equal_in_any_split():
    """A tied parameter starts as its owner does, wherever its stage is."""
    model = gpt(replace(CONFIG, tied=True))
    for replicas in ((1,), (1, 1)):
        stages = place_layers(model, graph_of(model), plan_of(LAYERS, replicas, 4))
        weights = dict(pair for stage in stages for pair in StageModule(stage, 3).named_weights())
        assert torch.equal(weights["head.scores.weight"], weights["embedding.tokens.weight"])
