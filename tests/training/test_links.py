"""The form of the tensor on an edge."""

from dataclasses import replace

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.training.links import TensorForm
from diaulos.training.rank import stage_forms
from diaulos.training.stage import place_layers
from tests.training.toy import CONFIG, toy_job


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_a_form_makes_a_tensor_of_its_form(shape, dtype):
    """What is received into has the shape and type of what is sent."""
    form = TensorForm.of(torch.zeros(shape, dtype=dtype))

    assert TensorForm.of(form.empty(torch.device("cpu"))) == form


def test_forms_of_stages_follow_the_model():
    """Tokens enter the first stage, vectors pass between, scores leave the last."""
    job = toy_job("1f1b", (1, 1), 2)
    placed = place_layers(job.model, job.graph, job.plan)
    first, last = (stage_forms(job, placed, stage) for stage in range(2))

    assert str(first.input) == "int64[2, 8]"
    assert str(first.output) == str(last.input) == "float32[2, 8, 16]"
    assert str(last.output) == "float32[2, 8, 256]"


def test_nothing_comes_back_to_stages_that_are_frozen():
    """A first stage whose weights stay gets no gradients; the last one, which has none, passes."""
    job = toy_job("1f1b", (1, 1, 1), 3)
    for frozen, expected in (("embedding", [0, 1]), ("head", [1, 1])):
        layers = [replace(spec, frozen=spec.name == frozen) for spec in job.model.layers]
        model = replace(job.model, layers=tuple(layers))
        placed = place_layers(model, job.graph, job.plan)
        changed = replace(job, model=model)
        forms = [stage_forms(changed, placed, stage).output.gradients for stage in range(2)]
        assert [len(form) for form in forms] == expected


def test_layers_that_do_not_fit_together_are_named():
    """A layer that cannot take what the layer before gives is refused before any rank computes."""
    job = toy_job("1f1b", (1, 1), 2)
    wide = gpt(replace(CONFIG, width=32)).layers[-1]
    model = replace(job.model, layers=(*job.model.layers[:-1], wide))
    with pytest.raises(InputError, match=r"layer head on stage 1 cannot take float32\[2, 8, 16\]"):
        stage_forms(replace(job, model=model), place_layers(model, job.graph, job.plan), stage=1)
