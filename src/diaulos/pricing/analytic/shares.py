"""What of a layer one device has: its part of a product, its parameters, what it keeps."""

import math

from diaulos.models.operations import LayerOperations, MatrixProduct, Region, Split
from diaulos.pricing.analytic.options import LayerOptions, Recompute
from diaulos.pricing.devices.attention import AttentionKind

_LOG_SUM_BYTES = 4
"""Kept by flash attention of each query and head."""


def local_product(product: MatrixProduct, options: LayerOptions) -> tuple[int, int, int, int]:
    """Rows, inner size, columns and count of the products that one device computes."""
    rows, inner, columns = product.rows / options.context_parallel, product.inner, product.columns
    count = product.count
    if product.split is Split.COLUMNS:
        columns = math.ceil(columns / options.tensor_parallel)
    elif product.split is Split.INNER:
        inner = math.ceil(inner / options.tensor_parallel)
    else:
        rows *= options.whole_share
    if product.experts:
        rows *= options.expert_parallel
        count = math.ceil(count / options.expert_parallel)
    return math.ceil(rows), inner, columns, count


def parameter_share(region: Region, options: LayerOptions) -> float:
    """The share of parameters that a device holds, before any are spread over replicas."""
    if region is Region.WHOLE:
        return 1.0
    if region is Region.EXPERTS:
        return 1 / (options.tensor_parallel * options.expert_parallel)
    return 1 / options.tensor_parallel


def activation_share(region: Region, options: LayerOptions) -> float:
    """The share of an activation that a device holds."""
    share = options.whole_share if region is Region.WHOLE else 1 / options.tensor_parallel
    return share / options.context_parallel


def activation_bytes(layer: LayerOperations, options: LayerOptions) -> float:
    """What a device keeps of a microbatch until its backward."""
    if not layer.recomputable or options.recompute is Recompute.NONE:
        return _saved_bytes(layer, options) + _kernel_bytes(layer, options)
    if options.recompute is Recompute.SELECTIVE:
        return _saved_bytes(layer, options)
    entering = layer.input_bytes * activation_share(Region.WHOLE, options)
    if options.recompute is Recompute.FULL:
        return entering
    return entering + _outputs_bytes(layer, options)


def temporary_bytes(layer: LayerOperations, options: LayerOptions) -> float:
    """The most that lives beside what is kept at one moment of the backward.

    That is what is computed again, and the gradients on their way.
    """
    everything = _saved_bytes(layer, options) + _kernel_bytes(layer, options)
    again = max(everything - activation_bytes(layer, options), 0.0)
    passing = sum(some.bytes * activation_share(some.region, options) for some in layer.temporary)
    return again + passing


def _saved_bytes(layer: LayerOperations, options: LayerOptions) -> float:
    return sum(some.bytes * activation_share(some.region, options) for some in layer.saved)


def _kernel_bytes(layer: LayerOperations, options: LayerOptions) -> float:
    """What attention keeps beside its inputs and its output."""
    size = 0.0
    for attention in layer.attentions:
        if options.attention is AttentionKind.FLASH:
            size += attention.samples * attention.heads * attention.queries * _LOG_SUM_BYTES
        else:
            element = options.precision.element_bytes
            size += attention.pairs * (element + (element + 1 if attention.dropout else 0))
    return size * activation_share(Region.SPLIT, options)


def _outputs_bytes(layer: LayerOperations, options: LayerOptions) -> float:
    """Of attention, and half of what products make, as every second one is kept."""
    element = options.precision.element_bytes
    attended = sum(attention.output_bytes(element) for attention in layer.attentions)
    size = attended * activation_share(Region.SPLIT, options)
    for product in layer.products:
        made = product.output_bytes(element)
        size += made * activation_share(product.output_region, options) / 2
    return size
