"""Modules of the user's own are traced by shape."""

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from diaulos.cli.models import ModelFlags
from diaulos.clusters.expression import parse_cluster
from diaulos.errors import InputError
from diaulos.estimating.estimate import estimate
from diaulos.models.operations import Split, Workload
from diaulos.models.traced.module import made_module
from tests.estimating.models import configuration
from tests.models import factory_toys

TOYS = "tests.models.factory_toys"
WORKLOAD = Workload(microbatch_size=2, sequence_length=8)


def test_flops_and_parameters_are_those_of_the_module() -> None:
    """As torch's counter counts them where attention runs as products."""
    found = made_module(f"{TOYS}:tokens")(WORKLOAD)
    with torch.device("meta"):
        module, inputs = factory_toys.tokens()
    with FlopCounterMode(display=False) as counter:
        module(inputs).backward()
    assert found.parameter_count == sum(weight.numel() for weight in module.parameters())
    assert counter.get_total_flops() == found.model_flops


def test_its_lists_are_blocks_and_its_attention_is_seen() -> None:
    """Blocks that are alike share their operations, and are split as Megatron-LM splits them."""
    found = made_module(f"{TOYS}:tokens")(WORKLOAD)
    names = [layer.name for layer in found.layers]
    assert names == ["embedding", "block_0", "block_1", "block_2", "head"]
    block = found.layers[1].operations
    assert block is found.layers[2].operations
    assert [product.split for product in block.products] == [Split.COLUMNS, Split.INNER]
    (attention,) = block.attentions
    assert (attention.heads, attention.queries, attention.causal) == (4, 8, True)
    assert found.heads == 4


@pytest.mark.parametrize("name", ["tokens", "branches", "chain"])
def test_a_workload_has_any_number_of_samples(name: str) -> None:
    """FLOPs are proportional to the samples, whatever the example has."""
    length = 8 if name == "tokens" else 1
    model = made_module(f"{TOYS}:{name}")
    one, three = (
        model(Workload(microbatch_size=count, sequence_length=length)) for count in (1, 3)
    )
    assert three.model_flops == 3 * one.model_flops > 0


def test_it_is_estimated_as_any_model() -> None:
    """The command line takes module:factory where it takes a config."""
    model = ModelFlags().model(Path(f"{TOYS}:tokens"), 8)
    found = estimate(model, parse_cluster("1xA100-80GB"), configuration(sequence_length=8))
    assert found.operations.parameter_count == 4416
    assert 0 < found.mfu < 1


def test_the_sequence_is_that_of_the_example() -> None:
    """Another length is refused, with the one there is."""
    with pytest.raises(InputError, match=r"sequence_length is 16; .* take 8"):
        made_module(f"{TOYS}:tokens")(Workload(microbatch_size=1, sequence_length=16))
