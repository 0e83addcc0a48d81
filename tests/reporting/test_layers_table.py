"""The table of a layer graph."""

from rich.console import Console

from diaulos.models.graph import Edge, Layer, LayerGraph, Option
from diaulos.reporting.layers_table import layers_table


def option(name: str, forward: float | None) -> Option:
    return Option(
        name=name,
        seconds=0.003,
        forward_seconds=forward,
        parameter_bytes=2048.0,
        activation_bytes=1024.0,
    )


def test_each_option_has_a_row_with_units() -> None:
    """Forward and backward stand apart where they are known; sizes and times have units."""
    graph = LayerGraph(
        layers=(
            Layer(id=0, name="first", options=(option("plain", 0.001), option("other", None))),
            Layer(id=1, options=(option("plain", 0.002),)),
        ),
        edges=(Edge(source=0, target=1, bytes=4096.0),),
    )
    console = Console(width=120)
    with console.capture() as captured:
        console.print(layers_table(graph))
    head, *rows = captured.get().splitlines()
    assert head.split()[:2] == ["layer", "option"]
    assert rows[0].split()[:6] == ["first", "plain", "1", "ms", "2", "ms"]
    assert "4 KiB" in rows[0]
    assert rows[1].split()[:3] == ["other", "3", "ms"]
    assert rows[2].split()[0] == "1"
