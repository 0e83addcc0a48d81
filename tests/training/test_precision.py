"""In which numbers runs compute, and what weights cost in them."""

from functools import partial

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.training.precision import Precision
from diaulos.training.stage import PlacedLayer, StageModule
from diaulos.training.weights import WeightVersions
from tests.training.toy import CONFIG, toy_job


def _held_bytes(kept, precision):
    """Bytes of all weights that a stage holds, by parameter."""
    spec = gpt(CONFIG).layers[-1]
    placed = [PlacedLayer(spec=spec, recompute=False)]
    module = StageModule(placed, 0, dtype=precision.computing)
    weights = WeightVersions(module, kept, partial(torch.optim.SGD, lr=1.0), precision=precision)
    storages = {
        weight.untyped_storage().data_ptr(): weight.untyped_storage().nbytes()
        for version in range(kept)
        for weight in weights.module(version).parameters()
    }
    masters = sum(master.nbytes for master in weights.masters().values())
    return (sum(storages.values()) + masters) / sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("precision", "one_version", "two_versions"),
    [(Precision.FLOAT32, 4, 8), (Precision.BF16, 6, 8), (Precision.FP16, 6, 8)],
)
def test_a_second_version_costs_two_bytes_in_low_precision(precision, one_version, two_versions):
    """In 16 bits each version is rounded from one master in 32; in 32 bits there is none apart."""
    assert _held_bytes(1, precision) == one_version
    assert _held_bytes(2, precision) == two_versions


def test_data_are_cast_and_tokens_are_not():
    """Layers compute in one precision, and tokens stay whole numbers."""
    assert Precision.BF16.computed(torch.ones(1)).dtype is torch.bfloat16
    assert Precision.BF16.computed(torch.ones(1, dtype=torch.int64)).dtype is torch.int64


def test_fp16_is_refused_where_stages_update_on_their_own():
    """Whether gradients overflowed is not known by then."""
    with pytest.raises(InputError, match="take precision bf16, or schedule 2bw"):
        toy_job("pipedream", (1, 1), 2, precision=Precision.FP16)
