"""Whether the times of a graph are seconds, as everything here takes them to be."""

import math
from dataclasses import replace
from enum import Enum

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph, Option
from diaulos.units import format_seconds

_MOST_COMPUTE = 300.0
_MOST_TRANSFER = 10_000.0


class TimeUnit(Enum):
    """What the times of a file are counted in."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"

    @property
    def seconds(self) -> float:
        """How long one is."""
        return {"s": 1.0, "ms": 1e-3, "us": 1e-6}[self.value]


def scale_times(graph: LayerGraph, factor: float) -> LayerGraph:
    """The graph with all times multiplied: by 1e-3 where a file states milliseconds."""
    if not (math.isfinite(factor) and factor > 0):
        raise InputError(f"the factor of all times is {factor!r}", "it must be finite and above 0")
    layers = tuple(
        replace(layer, options=tuple(_scaled(option, factor) for option in layer.options))
        for layer in graph.layers
    )
    provenance = {**graph.provenance, "times_multiplied_by": f"{factor:g}"}
    return replace(graph, layers=layers, provenance=provenance)


def time_unit_warning(graph: LayerGraph, bandwidth_bytes_per_second: float) -> str | None:
    """A sentence if times and bandwidth can hardly belong together, else None.

    Compares the seconds that all layers compute for a microbatch with the seconds that a link
    would need for all that they keep of it. Where both were measured on one system they are of
    like magnitude (BERT on A100s with 25 GiB/s: 1.3 to 1; PipeDream's ResNet-50 with 1 GB/s: 1 to
    43); Piper's files that state milliseconds are at 640 to 1 and beyond.
    """
    compute = math.fsum(
        min(option.seconds * option.tensor_parallel for option in layer.options)
        for layer in graph.layers
    )
    kept = math.fsum(
        max(option.activation_bytes for option in layer.options) for layer in graph.layers
    )
    transfer = kept / bandwidth_bytes_per_second
    if compute == 0 or transfer == 0:
        return None
    told = (
        f"all layers compute for {format_seconds(compute)} a microbatch, and a link could carry "
        f"all that they keep of it in {format_seconds(transfer)}"
    )
    if compute > _MOST_COMPUTE * transfer:
        return (
            f"{told}, {compute / transfer:.3g} times less: are the times milliseconds or "
            "microseconds?"
        )
    if transfer > _MOST_TRANSFER * compute:
        return f"{told}, {transfer / compute:.3g} times more: are the times seconds already?"
    return None


def _scaled(option: Option, factor: float) -> Option:
    def times(part: float | None) -> float | None:
        return None if part is None else min(part * factor, option.seconds * factor)

    return replace(
        option,
        seconds=option.seconds * factor,
        forward_seconds=times(option.forward_seconds),
        weight_backward_seconds=times(option.weight_backward_seconds),
        update_seconds=option.update_seconds * factor,
    )
