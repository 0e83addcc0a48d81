"""Averages of profiles."""

from dataclasses import replace

import pytest

from diaulos.errors import InputError
from diaulos.models.graph import Layer, LayerGraph, Option
from diaulos.pricing.averages import average_seconds


def _profile(*seconds, name="plain"):
    return LayerGraph(
        layers=tuple(
            Layer(
                id=index,
                options=(
                    Option(
                        name=name,
                        seconds=3 * second,
                        forward_seconds=second,
                        update_seconds=second / 2,
                        parameter_bytes=8,
                        activation_bytes=4,
                    ),
                ),
            )
            for index, second in enumerate(seconds)
        )
    )


def test_seconds_are_averaged_layer_by_layer():
    """All three times of each layer are the means over the profiles; bytes stay."""
    assert average_seconds([_profile(1, 4), _profile(3, 8)]) == _profile(2, 6)


def test_one_profile_is_its_own_average():
    """Nothing changes where there is nothing to average."""
    assert average_seconds([_profile(1, 4)]) == _profile(1, 4)


def test_an_unknown_forward_stays_unknown():
    """Where no profile measured forward apart, the average has none."""
    (layer,) = _profile(1).layers
    joined = replace(layer, options=(replace(layer.options[0], forward_seconds=None),))
    graph = LayerGraph(layers=(joined,))

    assert average_seconds([graph, graph]).layers[0].options[0].forward_seconds is None


@pytest.mark.parametrize("other", [_profile(1), _profile(1, 2, name="recompute")])
def test_profiles_of_other_models_are_refused(other):
    """Layers and options must be the same."""
    with pytest.raises(InputError, match="they must be of one model"):
        average_seconds([_profile(1, 2), other])
