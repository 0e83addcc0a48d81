"""Seconds of a layer on a device: its operations, what is computed again, and exchanges."""

import math
from dataclasses import dataclass

from diaulos.clusters.device import DType
from diaulos.models.operations import (
    Attention,
    Border,
    LayerOperations,
    MatrixProduct,
    MemoryBound,
    Region,
    Split,
)
from diaulos.pricing.analytic.groups import Groups
from diaulos.pricing.analytic.options import LayerOptions, Recompute
from diaulos.pricing.analytic.seconds import LayerSeconds, PassSeconds
from diaulos.pricing.analytic.shares import local_product, parameter_share
from diaulos.pricing.devices.attention import Direction, attention_seconds
from diaulos.pricing.devices.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    all_to_all_seconds,
    point_to_point_seconds,
    reduce_scatter_seconds,
)
from diaulos.pricing.devices.operations import matrix_product_seconds, memory_bound_seconds

_CAST_BYTES = 5
"""Moved to make an fp8 factor of a product: read for its largest element, read again and written,
with a scale for the whole tensor; each product casts both of its factors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backward:
    """The parts of a backward without what is computed again."""

    compute: float
    weights: float
    """The products for the gradients of weights, and their sum over microbatches."""
    inputs: float
    """The products for the gradients of what comes before split work."""


def layer_seconds(layer: LayerOperations, options: LayerOptions, groups: Groups) -> LayerSeconds:
    """Seconds of one microbatch through a layer on one rank."""
    forward = _forward(layer, options, groups)
    again, flops = _again(layer, options, groups, forward)
    backward = _backward_compute(layer, options, groups)
    exchanges = PassSeconds(
        compute=backward.compute,
        tensor=_tensor_backward(layer, options, groups, backward),
        context=_context_seconds(layer, options, groups, Direction.BACKWARD),
        expert=_expert_seconds(layer, options, groups),
    )
    return LayerSeconds(
        forward=forward,
        backward=exchanges + again,
        weight_backward=backward.weights,
        again=again,
        recomputed_flops=flops,
    )


def _forward(layer: LayerOperations, options: LayerOptions, groups: Groups) -> PassSeconds:
    products = sum(_product_seconds(p, options, groups) for p in layer.products)
    return PassSeconds(
        compute=products
        + _attentions_seconds(layer, options, groups, Direction.FORWARD)
        + _memory_bound(layer, options, groups, Direction.FORWARD),
        tensor=_tensor_forward(layer, options, groups),
        context=_context_seconds(layer, options, groups, Direction.FORWARD),
        expert=_expert_seconds(layer, options, groups),
    )


def _again(
    layer: LayerOperations, options: LayerOptions, groups: Groups, forward: PassSeconds
) -> tuple[PassSeconds, float]:
    """What the backward computes again, and its FLOPs."""
    if options.recompute is Recompute.NONE or not layer.recomputable:
        return PassSeconds(), 0.0
    if options.recompute is Recompute.FULL:
        return forward, layer.forward_flops
    if options.recompute is Recompute.SELECTIVE:
        seconds = _attentions_seconds(layer, options, groups, Direction.FORWARD)
        return PassSeconds(compute=seconds), layer.attention_flops
    products = sum(_product_seconds(p, options, groups) for p in layer.products)
    compute = products / 2 + _memory_bound(layer, options, groups, Direction.FORWARD)
    return PassSeconds(compute=compute, tensor=forward.tensor / 2), layer.product_flops / 2


def _backward_compute(layer: LayerOperations, options: LayerOptions, groups: Groups) -> _Backward:
    inputs = weights = entering = 0.0
    for product in layer.products:
        seconds = _product_seconds(product, options, groups, "input")
        inputs += seconds
        entering += seconds if product.split is Split.COLUMNS else 0.0
        weights += _product_seconds(product, options, groups, "weights")
    weights += _accumulation_seconds(layer, options, groups, weights)
    rest = _attentions_seconds(layer, options, groups, Direction.BACKWARD)
    rest += _memory_bound(layer, options, groups, Direction.BACKWARD)
    return _Backward(compute=inputs + weights + rest, weights=weights, inputs=entering)


def _product_seconds(
    product: MatrixProduct, options: LayerOptions, groups: Groups, way: str = "output"
) -> float:
    """Of the product, or of one of the two that give the gradients of its input and weights."""
    rows, inner, columns, count = local_product(product, options)
    if way == "input":
        inner, columns = columns, inner
    elif way == "weights":
        rows, inner = inner, rows
    dtype = options.precision.products
    seconds = matrix_product_seconds(
        groups.device, rows=rows, inner=inner, columns=columns, count=count, dtype=dtype
    )
    seconds /= groups.device.efficiency.sustained
    if dtype is DType.FP8:
        cast = count * inner * (rows + columns) * _CAST_BYTES
        seconds += memory_bound_seconds(groups.device, size_bytes=cast, launches=2)
    return seconds


def _accumulation_seconds(
    layer: LayerOperations, options: LayerOptions, groups: Groups, products: float
) -> float:
    """What adding a microbatch's gradients of weights to their sum takes beside the products.

    A fused product reads the sum and writes it back while it computes; else one kernel for each
    tensor reads both and writes one.
    """
    if not layer.parameters:
        return 0.0
    precision = options.precision
    count = sum(some.count * parameter_share(some.region, options) for some in layer.parameters)
    fused = options.runtime.fused and bool(layer.products)
    size = count * (2 * precision.gradient_bytes + (0 if fused else precision.parameter_bytes))
    launches = 1 if fused else len(layer.parameters)
    seconds = memory_bound_seconds(groups.device, size_bytes=size, launches=launches)
    return max(seconds - products, 0.0) if fused else seconds


def _attentions_seconds(
    layer: LayerOperations, options: LayerOptions, groups: Groups, direction: Direction
) -> float:
    return sum(_attention_seconds(a, options, groups, direction) for a in layer.attentions)


def _attention_seconds(
    attention: Attention, options: LayerOptions, groups: Groups, direction: Direction
) -> float:
    """Of a rank's heads; context parallelism shares the pairs of queries and keys evenly."""
    return (
        attention_seconds(
            groups.device,
            samples=attention.samples,
            heads=math.ceil(attention.heads / options.tensor_parallel),
            queries=attention.queries,
            keys=attention.keys,
            head_size=attention.score_size,
            value_size=attention.value_size,
            causal=attention.causal,
            window=attention.window,
            dropout=attention.dropout,
            dtype=options.precision.activations,
            kind=options.attention,
            direction=direction,
        )
        / options.context_parallel
    )


def _memory_bound(
    layer: LayerOperations, options: LayerOptions, groups: Groups, direction: Direction
) -> float:
    return sum(_traffic_seconds(work, options, groups, direction) for work in layer.memory_bound)


def _traffic_seconds(
    work: MemoryBound, options: LayerOptions, groups: Groups, direction: Direction
) -> float:
    traffic = work.fused if options.runtime.fused else work.unfused
    forward = direction is Direction.FORWARD
    size = traffic.forward_bytes if forward else traffic.backward_bytes
    share = options.whole_share if work.region is Region.WHOLE else 1 / options.tensor_parallel
    return memory_bound_seconds(
        groups.device,
        size_bytes=size * share / options.context_parallel,
        launches=traffic.forward_kernels if forward else traffic.backward_kernels,
    )


def _tensor_forward(layer: LayerOperations, options: LayerOptions, groups: Groups) -> float:
    """All-reduces where tensors leave split work; with sequence parallelism the two halves."""
    seconds = 0.0
    for exchange in layer.exchanges:
        size = exchange.bytes / options.context_parallel
        leaving = exchange.border is Border.LEAVING
        if options.sequence_parallel:
            collective = reduce_scatter_seconds if leaving else all_gather_seconds
            seconds += collective(groups.tensor, size)
        elif leaving:
            seconds += all_reduce_seconds(groups.tensor, size)
    return seconds


def _tensor_backward(
    layer: LayerOperations, options: LayerOptions, groups: Groups, backward: _Backward
) -> float:
    """What nothing hides: sums of gradients may run beside the products for those of weights.

    With sequence parallelism the input is gathered again, beside the products for its gradient.
    """
    summed = gathered = open_seconds = 0.0
    for exchange in layer.exchanges:
        size = exchange.bytes / options.context_parallel
        if exchange.border is Border.ENTERING:
            if options.sequence_parallel:
                summed += reduce_scatter_seconds(groups.tensor, size)
                gathered += all_gather_seconds(groups.tensor, size)
            else:
                summed += all_reduce_seconds(groups.tensor, size)
        elif options.sequence_parallel:
            open_seconds += all_gather_seconds(groups.tensor, size)
    if options.runtime.hides_tensor_parallel:
        summed = max(summed - backward.weights, 0.0)
        gathered = max(gathered - backward.inputs, 0.0)
    return open_seconds + summed + gathered


def _context_seconds(
    layer: LayerOperations, options: LayerOptions, groups: Groups, direction: Direction
) -> float:
    """Keys and values passed round the group, beside the attention to those that are there.

    Backward their gradients come along, which is twice as much.
    """
    degree = options.context_parallel
    if degree == 1:
        return 0.0
    link = groups.context.inside if groups.context.nodes == 1 else groups.context.between
    seconds = 0.0
    for attention in layer.attentions:
        shards = min(options.tensor_parallel, attention.key_value_heads)
        size = attention.key_value_bytes(options.precision.element_bytes) / (degree * shards)
        size *= 1 if direction is Direction.FORWARD else 2
        passing = (degree - 1) * point_to_point_seconds(link, size)
        hidden = _attention_seconds(attention, options, groups, direction) * (degree - 1) / degree
        seconds += max(passing - hidden, 0.0)
    return seconds


def _expert_seconds(layer: LayerOperations, options: LayerOptions, groups: Groups) -> float:
    """Tokens to the devices of their experts and back."""
    if options.expert_parallel == 1:
        return 0.0
    share = options.whole_share / options.context_parallel
    return sum(
        2 * all_to_all_seconds(groups.expert, dispatch.bytes * share)
        for dispatch in layer.dispatches
    )
