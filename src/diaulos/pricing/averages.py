"""Several profiles of one model as one: a machine's speed drifts from minute to minute."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from diaulos.errors import InputError
from diaulos.models.graph import Layer, LayerGraph, Option


def average_seconds(profiles: Sequence[LayerGraph]) -> LayerGraph:
    """The first profile with the mean seconds of all of them, option by option."""
    first = profiles[0]
    for other in profiles[1:]:
        if [_keys(layer) for layer in other.layers] != [_keys(layer) for layer in first.layers]:
            raise InputError(
                "the profiles differ in their layers or options", "they must be of one model"
            )
    layers = tuple(
        _average_layer([profile.layers[index] for profile in profiles])
        for index in range(len(first.layers))
    )
    return replace(first, layers=layers)


def _keys(layer: Layer) -> tuple[object, ...]:
    return layer.id, layer.name, [(o.name, o.tensor_parallel, o.is_split) for o in layer.options]


def _average_layer(layers: Sequence[Layer]) -> Layer:
    options = tuple(
        _average_option(list(same))
        for same in zip(*(layer.options for layer in layers), strict=True)
    )
    return replace(layers[0], options=options)


def _average_option(options: Sequence[Option]) -> Option:
    forward = [o.forward_seconds for o in options if o.forward_seconds is not None]
    return replace(
        options[0],
        seconds=fmean(option.seconds for option in options),
        forward_seconds=fmean(forward) if forward else None,
        update_seconds=fmean(option.update_seconds for option in options),
    )
