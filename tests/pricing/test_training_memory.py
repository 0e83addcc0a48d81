"""The memory of training, in closed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.models.graph import FixedMemory, Layer, LayerGraph, Option
from diaulos.pricing.training_memory import with_training_state


def graph_of(parameter_bytes: float, fixed_memory: FixedMemory) -> LayerGraph:
    option = Option(
        name="plain",
        seconds=1.0,
        parameter_bytes=parameter_bytes,
        activation_bytes=7.0,
        fixed_memory=fixed_memory,
    )
    return LayerGraph(layers=(Layer(id=0, options=(option,)),))


def fixed(graph: LayerGraph) -> FixedMemory:
    return graph.layers[0].options[0].fixed_memory


@given(
    weights=st.integers(0, 2**40),
    temporary=st.integers(0, 2**40),
    ratio=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_each_kind_has_its_closed_form(weights: int, temporary: int, ratio: float) -> None:
    """W weights, W gradients, rW optimizer, 2W for a further version; the temporary stays."""
    graph = with_training_state(
        graph_of(weights, FixedMemory(temporary_bytes=temporary)),
        optimizer_bytes_per_parameter_byte=ratio,
    )
    assert fixed(graph) == FixedMemory(
        parameters_bytes=weights,
        gradients_bytes=weights,
        optimizer_bytes=ratio * weights,
        versions_bytes=2 * weights,
        temporary_bytes=temporary,
    )


def test_adamw_in_single_precision() -> None:
    """16 bytes a parameter with a flush; 2BW adds a version and its gradients, 8 bytes."""
    memory = fixed(
        with_training_state(graph_of(4.0, FixedMemory()), optimizer_bytes_per_parameter_byte=2.0)
    )
    assert memory.total_bytes - memory.versions_bytes == 16
    assert memory.versions_bytes == 8


def test_filling_in_twice_is_filling_in_once() -> None:
    """The last statement of the training state holds; nothing is counted twice."""
    once = with_training_state(
        graph_of(4.0, FixedMemory(temporary_bytes=3.0)), optimizer_bytes_per_parameter_byte=1.0
    )
    twice = with_training_state(
        with_training_state(once, optimizer_bytes_per_parameter_byte=2.0),
        optimizer_bytes_per_parameter_byte=1.0,
    )
    assert twice == once


def test_memory_stated_as_one_sum_is_not_counted_again() -> None:
    """A Piper file counts the training state already, and says so as one number."""
    with pytest.raises(InputError, match="as one sum"):
        with_training_state(
            graph_of(4.0, FixedMemory(unspecified_bytes=1.0)),
            optimizer_bytes_per_parameter_byte=2.0,
        )


def test_a_negative_optimizer_is_refused() -> None:
    """No optimizer holds less than nothing."""
    with pytest.raises(InputError, match="optimizer_bytes_per_parameter_byte is -1"):
        with_training_state(graph_of(4.0, FixedMemory()), optimizer_bytes_per_parameter_byte=-1.0)
