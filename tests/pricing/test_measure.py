"""Measured layer graphs; no test asserts how long anything takes."""

from pathlib import Path

import pytest

from diaulos.errors import InputError
from diaulos.models.files import read_graph, write_graph
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.graph import LayerGraph
from diaulos.models.layers import build_layer
from diaulos.pricing.measure import profile
from tests.pricing.toy_model import toy_model

MODEL = gpt(GPTConfig(layers=2, width=16, heads=2, sequence_length=8, vocabulary=32))


@pytest.fixture(scope="module")
def measured() -> LayerGraph:
    return profile(MODEL, microbatch_size=2, processes=2, repetitions=1)


def test_the_graph_is_the_model_as_a_chain(measured: LayerGraph) -> None:
    """Layer i of the model is layer i of the graph, and each feeds the next its output."""
    assert [layer.name for layer in measured.layers] == [layer.name for layer in MODEL.layers]
    ends = [(edge.source, edge.target, edge.bytes) for edge in measured.edges]
    assert ends == [(0, 1, 1024.0), (1, 2, 1024.0), (2, 3, 1024.0)]


def test_every_layer_has_both_options_with_positive_times(measured: LayerGraph) -> None:
    """Forward, backward and update take time, with and without recomputation."""
    for layer in measured.layers:
        assert [(option.name, option.recompute) for option in layer.options] == [
            ("plain", False),
            ("recompute", True),
        ]
        for option in layer.options:
            assert option.forward_seconds is not None
            assert 0 < option.forward_seconds < option.seconds
            assert option.update_seconds > 0


def test_parameter_bytes_are_those_of_the_model(measured: LayerGraph) -> None:
    """What replicas reduce is every parameter of the layer once."""
    for layer, spec in zip(measured.layers, MODEL.layers, strict=True):
        size = sum(4 * weight.numel() for weight in build_layer(spec, 0).parameters())
        assert {option.parameter_bytes for option in layer.options} == {size}


def test_recomputation_holds_less_in_flight(measured: LayerGraph) -> None:
    """A recomputed block holds its input in flight, and more for a moment."""
    plain, recompute = measured.layers[1].options
    assert recompute.activation_bytes == 1024.0 < plain.activation_bytes
    assert recompute.fixed_memory.temporary_bytes > plain.fixed_memory.temporary_bytes


def test_it_says_where_the_prices_come_from(measured: LayerGraph, tmp_path: Path) -> None:
    """Provenance names model, machine and method, and all of it survives the file."""
    assert measured.provenance["processes"] == "2"
    assert measured.provenance["microbatch_size"] == "2"
    assert measured.provenance["width"] == "16"
    assert measured.provenance["optimizer"] == "AdamW"
    assert float(measured.provenance["layers_over_whole_model"]) > 0
    write_graph(tmp_path / "graph.json", measured)
    assert read_graph(tmp_path / "graph.json").graph == measured


def test_layers_without_parameters_or_gradients_are_measured() -> None:
    """A model of floating-point inputs with a layer without weights has a graph too."""
    graph = profile(toy_model(), microbatch_size=2, repetitions=1)
    assert [option.update_seconds >= 0 for option in graph.layers[1].options] == [True, True]
    assert graph.layers[1].options[0].parameter_bytes == 0


@pytest.mark.parametrize("name", ["microbatch_size", "processes", "repetitions"])
def test_counts_are_at_least_one(name: str) -> None:
    """A count of 0 is refused by name before any process starts."""
    with pytest.raises(InputError, match=f"{name} is 0"):
        profile(MODEL, **{"microbatch_size": 1, name: 0})
