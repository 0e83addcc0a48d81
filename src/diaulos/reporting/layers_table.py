"""The prices of a layer graph as a table."""

from rich.table import Table

from diaulos.models.graph import Layer, LayerGraph, Option
from diaulos.units import format_bytes, format_seconds

_NUMBERS = ("forward", "backward", "update", "parameters", "in flight", "fixed", "output")


def layers_table(graph: LayerGraph) -> Table:
    """A row for each option of each layer: times of a microbatch and an update, and bytes.

    `in flight` is held for each microbatch in flight, `fixed` once, `output` goes to the layers
    after it.
    """
    table = Table(box=None, pad_edge=False)
    for name in ("layer", "option"):
        table.add_column(name, no_wrap=True)
    for name in _NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    for layer in graph.layers:
        for index, option in enumerate(layer.options):
            name = (layer.name or str(layer.id)) if index == 0 else ""
            table.add_row(name, option.name, *_numbers(graph, layer, option))
    return table


def _numbers(graph: LayerGraph, layer: Layer, option: Option) -> tuple[str, ...]:
    forward = option.forward_seconds
    times = (
        ("", format_seconds(option.seconds))
        if forward is None
        else (format_seconds(forward), format_seconds(option.seconds - forward))
    )
    sizes = (
        option.parameter_bytes,
        option.activation_bytes,
        option.fixed_bytes,
        sum(edge.bytes for edge in graph.edges if edge.source == layer.id),
    )
    return (*times, format_seconds(option.update_seconds), *map(format_bytes, sizes))
