"""Stages as modules, and the plan's layers placed in them."""

from dataclasses import replace

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.training.stage import StageModule, place_layers
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
    hidden = inputs
    for stage in _placed((1, 1, 1)):
        hidden = StageModule(stage, 0)(hidden)

    assert torch.equal(StageModule(_placed((1,))[0], 0)(inputs), hidden)


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


def test_tensor_parallel_stages_are_refused():
    """The trainer says what it cannot run, and how to plan without it."""
    plan = plan_of(LAYERS, (1,), 4)
    stage = replace(plan.stages[0], tensor_parallel=2)
    with pytest.raises(InputError, match="plan with --no-tensor-parallel"):
        place_layers(MODEL, graph_of(MODEL), replace(plan, stages=(stage,)))
