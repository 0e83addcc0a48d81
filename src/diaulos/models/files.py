"""Layer graph files: any format read, and the project's own, JSON with a version and units."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diaulos.documents import Value, read_json, read_text, write_json
from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option
from diaulos.models.pipedream import is_pipedream, parse_pipedream
from diaulos.models.piper import PiperFile, parse_piper
from diaulos.models.time_units import TimeUnit, scale_times

FORMAT = "diaulos.layer_graph/1"
_OPTION_KEYS = ("name", "tensor_parallel", "seconds", "parameter_bytes", "activation_bytes")
_OPTION_EXTRAS = (
    "forward_seconds",
    "weight_backward_seconds",
    "update_seconds",
    "recompute",
    "sequence_parallel",
    "fixed_memory",
    "input_sync_bytes",
    "output_sync_bytes",
)
_MEMORY_KEYS = tuple(f"{kind}_bytes" for kind in FixedMemory().by_kind())


@dataclass(frozen=True, kw_only=True)
class GraphFile:
    """A graph, and the planning defaults that Piper's files carry along."""

    graph: LayerGraph
    piper: PiperFile | None = None
    """As it stands in the file, its times in `time_unit`."""
    time_unit: TimeUnit = TimeUnit.SECONDS
    """What the file counts in; the graph's times are seconds."""


def read_graph(
    path: Path, *, batch_size: int | None = None, time_unit: TimeUnit = TimeUnit.SECONDS
) -> GraphFile:
    """A layer graph from a file of any format; its content tells which.

    JSON with a `format` is the project's own and without one Piper's; a text that states
    forward times is PipeDream's profile, the only one that takes a `batch_size`. Piper's files do
    not say what they count in: `time_unit` does.
    """
    text = read_text(path)
    if is_pipedream(text):
        _refuse_unit(path, time_unit, "PipeDream's profiles state milliseconds, and are read so")
        return GraphFile(graph=parse_pipedream(text, source=str(path), batch_size=batch_size))
    if batch_size is not None:
        raise InputError(
            f"batch_size is {batch_size}", "only PipeDream's profiles take it", where=str(path)
        )
    document = read_json(path)
    if "format" not in document.members():
        piper = parse_piper(document)
        graph = piper.graph
        if time_unit is not TimeUnit.SECONDS:
            graph = scale_times(graph, time_unit.seconds)
        return GraphFile(graph=graph, piper=piper, time_unit=time_unit)
    _refuse_unit(path, time_unit, "files of this format state seconds")
    return GraphFile(graph=parse_graph(document))


def _refuse_unit(path: Path, time_unit: TimeUnit, rule: str) -> None:
    if time_unit is not TimeUnit.SECONDS:
        raise InputError(
            f"the time unit is {time_unit.value}", rule, "leave it out", where=str(path)
        )


def write_graph(path: Path, graph: LayerGraph) -> None:
    """Write a layer graph; reading it back gives an equal one."""
    write_json(path, format_graph(graph))


def parse_graph(document: Value) -> LayerGraph:
    """The graph of a parsed document."""
    fields = document.fields(("format", "layers", "edges"), ("provenance",))
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    provenance = fields["provenance"].members() if "provenance" in fields else {}
    layers = tuple(_parse_layer(layer) for layer in fields["layers"].items())
    edges = tuple(_parse_edge(edge) for edge in fields["edges"].items())
    with document.context():
        return LayerGraph(
            layers=layers,
            edges=edges,
            provenance={key: value.text() for key, value in provenance.items()},
        )


def format_graph(graph: LayerGraph) -> dict[str, Any]:
    """The document of a graph."""
    return {
        "format": FORMAT,
        "provenance": dict(graph.provenance),
        "layers": [
            {
                "id": layer.id,
                **({} if layer.name is None else {"name": layer.name}),
                "options": [_format_option(option) for option in layer.options],
            }
            for layer in graph.layers
        ],
        "edges": [
            {"source": edge.source, "target": edge.target, "bytes": edge.bytes}
            for edge in graph.edges
        ],
    }


def _parse_layer(value: Value) -> Layer:
    fields = value.fields(("id", "options"), ("name",))
    options = tuple(_parse_option(option) for option in fields["options"].items())
    with value.context():
        return Layer(
            id=fields["id"].integer(),
            name=fields["name"].text() if "name" in fields else None,
            options=options,
        )


def _parse_option(value: Value) -> Option:
    fields = value.fields(_OPTION_KEYS, _OPTION_EXTRAS)
    numbers = {
        key: fields[key].number()
        for key in ("seconds", "forward_seconds", "weight_backward_seconds", "update_seconds")
        if key in fields
    }
    with value.context():
        return Option(
            name=fields["name"].text(),
            tensor_parallel=fields["tensor_parallel"].integer(minimum=1),
            recompute=_parse_flag(fields, "recompute"),
            sequence_parallel=_parse_flag(fields, "sequence_parallel"),
            parameter_bytes=fields["parameter_bytes"].number(),
            activation_bytes=fields["activation_bytes"].number(),
            fixed_memory=_parse_memory(fields.get("fixed_memory")),
            input_sync_bytes=_parse_sync(fields.get("input_sync_bytes")),
            output_sync_bytes=_parse_sync(fields.get("output_sync_bytes")),
            **numbers,
        )


def _parse_flag(fields: Mapping[str, Value], key: str) -> bool:
    return fields[key].boolean() if key in fields else False


def _parse_memory(value: Value | None) -> FixedMemory:
    fields = value.fields((), _MEMORY_KEYS) if value else {}
    return FixedMemory(**{key: amount.number() for key, amount in fields.items()})


def _parse_sync(value: Value | None) -> dict[int, float]:
    sync = {}
    for key, amount in (value.members() if value else {}).items():
        if not key.lstrip("-").isdecimal():
            raise amount.error(f"has the key {key!r}", "it must be the id of a layer")
        sync[int(key)] = amount.number()
    return sync


def _parse_edge(value: Value) -> Edge:
    fields = value.fields(("source", "target", "bytes"))
    return Edge(
        source=fields["source"].integer(),
        target=fields["target"].integer(),
        bytes=fields["bytes"].number(),
    )


def _format_option(option: Option) -> dict[str, Any]:
    document: dict[str, Any] = {"name": option.name, "tensor_parallel": option.tensor_parallel}
    document["seconds"] = option.seconds
    for key in ("forward_seconds", "weight_backward_seconds"):
        if getattr(option, key) is not None:
            document[key] = getattr(option, key)
    document["update_seconds"] = option.update_seconds
    document["recompute"] = option.recompute
    if option.sequence_parallel:
        document["sequence_parallel"] = True
    document["parameter_bytes"] = option.parameter_bytes
    document["activation_bytes"] = option.activation_bytes
    memory = option.fixed_memory.by_kind()
    document["fixed_memory"] = {f"{kind}_bytes": amount for kind, amount in memory.items()}
    for key in ("input_sync_bytes", "output_sync_bytes"):
        document[key] = {str(other): amount for other, amount in getattr(option, key).items()}
    return document
