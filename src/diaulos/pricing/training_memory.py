"""What training holds for each layer beside its activations."""

from dataclasses import replace

from diaulos.errors import InputError
from diaulos.models.graph import FixedMemory, Layer, LayerGraph, Option


def with_training_state(
    graph: LayerGraph, *, optimizer_bytes_per_parameter_byte: float
) -> LayerGraph:
    """The graph with the fixed memory of every option filled in, by kind.

    `optimizer_bytes_per_parameter_byte` is 2 for AdamW and 1 for SGD with momentum, in the
    precision of the parameters.

    Each version of the weights beyond the first (2BW has one more) adds the weights and as many
    gradients: with 2BW the update of batch t may wait until the last moment before its weights are
    needed, which takes the gradient norm and the reduction over replicas off the critical path,
    and by then batch t+1 has gradients of its own. How many versions there are is the schedule's
    to say, so `versions_bytes` is what one adds. The optimizer has one state whatever the
    versions. The temporary memory stays as it was measured.
    """
    if optimizer_bytes_per_parameter_byte < 0:
        raise InputError(
            f"optimizer_bytes_per_parameter_byte is {optimizer_bytes_per_parameter_byte}",
            "it must be at least 0",
            "2 for AdamW, 1 for SGD with momentum, 0 for plain SGD",
        )
    layers = tuple(
        replace(
            layer,
            options=tuple(
                _with_state(layer, option, optimizer_bytes_per_parameter_byte)
                for option in layer.options
            ),
        )
        for layer in graph.layers
    )
    provenance = {
        **graph.provenance,
        "optimizer_bytes_per_parameter_byte": f"{optimizer_bytes_per_parameter_byte:g}",
    }
    return replace(graph, layers=layers, provenance=provenance)


def _with_state(layer: Layer, option: Option, optimizer_ratio: float) -> Option:
    if option.fixed_memory.unspecified_bytes > 0:
        raise InputError(
            f"option {option.name!r} of layer {layer.label} states its fixed memory as one sum",
            "the training state can only be added to a graph that does not count it already",
            "plan this graph as it is",
        )
    weights = option.parameter_bytes
    memory = FixedMemory(
        parameters_bytes=weights,
        gradients_bytes=weights,
        optimizer_bytes=weights * optimizer_ratio,
        versions_bytes=2 * weights,
        temporary_bytes=option.fixed_memory.temporary_bytes,
    )
    return replace(option, fixed_memory=memory)
