"""FLOPs and saved bytes of decoders are those of the published formulas."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.documents import Value
from diaulos.models.decoders.configuration import parse_config
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.decoders.sizes import DecoderSizes
from diaulos.models.operations import Region, Workload
from tests.models.decoders.published import CONFIGS


def sizes(name: str) -> DecoderSizes:
    return parse_config(Value(CONFIGS[name], "$", name), name)


@given(samples=st.integers(1, 8), length=st.integers(1, 4096))
def test_flops_of_gpt_are_those_of_the_formula(samples: int, length: int) -> None:
    """Forward and backward are 72 b s l h^2 (1 + s/6h + V/12lh) (Narayanan et al., SC 2021)."""
    model = sizes("gpt2-xl")
    found = decoder_operations(model, Workload(microbatch_size=samples, sequence_length=length))
    hidden, layers = model.hidden, len(model.blocks)
    terms = 1 + length / (6 * hidden) + model.vocabulary / (12 * layers * hidden)
    assert found.model_flops == pytest.approx(72 * samples * length * layers * hidden**2 * terms)


@given(samples=st.integers(1, 8), length=st.integers(1, 4096))
def test_saved_bytes_of_gpt_are_those_of_the_formula(samples: int, length: int) -> None:
    """A block keeps 10 sbh whole and 24 sbh split (Korthikanti et al., MLSys 2023, equation 2)."""
    model = sizes("gpt2-xl")
    workload = Workload(microbatch_size=samples, sequence_length=length)
    block = decoder_operations(model, workload).layers[1].operations
    product = workload.tokens * model.hidden
    kept = {
        region: sum(tensor.bytes for tensor in block.saved if tensor.region is region)
        for region in Region
    }
    assert kept[Region.WHOLE] == pytest.approx(10 * product)
    assert kept[Region.SPLIT] == pytest.approx(24 * product)


@pytest.mark.parametrize("name", CONFIGS)
def test_everything_grows_with_the_samples(name: str) -> None:
    """FLOPs and saved bytes of all families are proportional to the samples of a microbatch."""
    model = sizes(name)
    one, three = (
        decoder_operations(model, Workload(microbatch_size=count, sequence_length=1024))
        for count in (1, 3)
    )
    assert three.model_flops == pytest.approx(3 * one.model_flops)
    for few, many in zip(one.layers, three.layers, strict=True):
        saved = [sum(t.bytes for t in layer.operations.saved) for layer in (few, many)]
        assert saved[1] == pytest.approx(3 * saved[0])


def test_equal_blocks_share_their_operations() -> None:
    """Of a model of equal blocks only one is made."""
    found = decoder_operations(
        sizes("llama-3-70b"), Workload(microbatch_size=1, sequence_length=8192)
    )
    assert len({id(layer.operations) for layer in found.layers}) == 5


def test_a_tied_head_owns_nothing() -> None:
    """A tied head's scores count as parameters of the embedding alone."""
    model = sizes("gpt2")
    workload = Workload(microbatch_size=1, sequence_length=16)
    tied = decoder_operations(model, workload)
    loose = decoder_operations(replace(model, tied=False), workload)
    assert loose.parameter_count - tied.parameter_count == model.hidden * model.vocabulary
