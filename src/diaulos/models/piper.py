"""Piper's JSON: the format of the inputs of its paper, read and written without loss."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diaulos.documents import Value, read_json, write_json
from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option

_OPTION_KEYS = (
    "id",
    "timePerSample",
    "parameterSize",
    "memoryUsageA",
    "memoryUsageB",
    "syncTimeFw",
    "syncTimeBw",
)
_RECOMPUTE_NAME = "activation recomp"
_MICROBATCH_KEYS = ("mbsInBatch", "maxBatchSize")


@dataclass(frozen=True, kw_only=True)
class PiperFile:
    """All that a Piper file states: a graph and the defaults of a planning problem.

    Times have whatever unit the profile had; `bandwidth` is bytes per that unit.
    """

    graph: LayerGraph
    max_devices: int
    max_memory_per_device_bytes: float
    bandwidth_bytes_per_second: float
    microbatches: int
    microbatches_key: str = "mbsInBatch"
    """Piper's code reads `mbsInBatch`, its README says `maxBatchSize`."""


def read_piper(path: Path) -> PiperFile:
    """The contents of a Piper JSON file."""
    return parse_piper(read_json(path))


def parse_piper(document: Value) -> PiperFile:
    """The contents of a parsed Piper document."""
    fields = document.fields(
        ("maxDevices", "maxMemoryPerDevice", "bandwidth", "nodes", "edges"), _MICROBATCH_KEYS
    )
    stated = [key for key in _MICROBATCH_KEYS if key in fields]
    if len(stated) != 1:
        raise document.error(
            f"has {len(stated)} of the keys {' and '.join(_MICROBATCH_KEYS)}",
            "it must state the number of microbatches in a batch exactly once",
        )
    nodes = [_parse_node(node) for node in fields["nodes"].items()]
    edges = [_parse_edge(edge) for edge in fields["edges"].items()]
    with document.context():
        graph = LayerGraph(layers=tuple(nodes), edges=tuple(edges))
    _check_sync_complete(graph, fields["nodes"])
    return PiperFile(
        graph=graph,
        max_devices=fields["maxDevices"].integer(minimum=1),
        max_memory_per_device_bytes=fields["maxMemoryPerDevice"].number(),
        bandwidth_bytes_per_second=fields["bandwidth"].number(above=0),
        microbatches=fields[stated[0]].integer(minimum=1),
        microbatches_key=stated[0],
    )


def write_piper(path: Path, file: PiperFile) -> None:
    """Write a Piper JSON file; reading it back gives an equal `PiperFile`."""
    write_json(path, format_piper(file))


def format_piper(file: PiperFile) -> dict[str, Any]:
    """The document of a Piper file."""
    return {
        "maxDevices": file.max_devices,
        "maxMemoryPerDevice": file.max_memory_per_device_bytes,
        "bandwidth": file.bandwidth_bytes_per_second,
        file.microbatches_key: file.microbatches,
        "nodes": [_format_node(layer) for layer in file.graph.layers],
        "edges": [
            {"sourceId": edge.source, "destId": edge.target, "communicationCost": edge.bytes}
            for edge in file.graph.edges
        ],
    }


def _parse_node(node: Value) -> Layer:
    fields = node.fields(("id", "TMPCs"), ("name",))
    options = []
    for degree, values in fields["TMPCs"].members().items():
        if not degree.isascii() or not degree.isdecimal() or int(degree) < 1:
            raise values.error(
                f"has the key {degree!r}", "it is a tensor-parallel degree, 1 or more, as text"
            )
        options += [_parse_option(value, int(degree)) for value in values.items()]
    with node.context():
        return Layer(
            id=fields["id"].integer(),
            name=fields["name"].text() if "name" in fields else None,
            options=tuple(options),
        )


def _parse_option(value: Value, degree: int) -> Option:
    fields = value.fields(_OPTION_KEYS)
    name = fields["id"].text()
    with value.context():
        return Option(
            name=name,
            tensor_parallel=degree,
            recompute=name == _RECOMPUTE_NAME,
            seconds=fields["timePerSample"].number(),
            parameter_bytes=fields["parameterSize"].number(),
            activation_bytes=fields["memoryUsageA"].number(),
            fixed_memory=FixedMemory(unspecified_bytes=fields["memoryUsageB"].number()),
            input_sync_bytes=_parse_sync(fields["syncTimeFw"]),
            output_sync_bytes=_parse_sync(fields["syncTimeBw"]),
        )


def _parse_sync(value: Value) -> dict[int, float]:
    sync = {}
    for key, amount in value.members().items():
        try:
            sync[int(key)] = amount.number()
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise amount.error(f"has the key {key!r}", "it must be the id of a node") from None
    return sync


def _parse_edge(edge: Value) -> Edge:
    fields = edge.fields(("sourceId", "destId", "communicationCost"))
    return Edge(
        source=fields["sourceId"].integer(),
        target=fields["destId"].integer(),
        bytes=fields["communicationCost"].number(),
    )


def _check_sync_complete(graph: LayerGraph, nodes: Value) -> None:
    for layer, node in zip(graph.layers, nodes.items(), strict=True):
        for option in layer.options:
            for key, stated, needed in (
                ("syncTimeFw", option.input_sync_bytes, graph.predecessors[layer.id]),
                ("syncTimeBw", option.output_sync_bytes, graph.successors[layer.id]),
            ):
                missing = sorted(set(needed) - stated.keys())
                if missing:
                    raise node.error(
                        f"lacks {key} of {missing} in option {option.name!r}",
                        "syncTimeFw has all predecessors and syncTimeBw all successors",
                    )


def _format_node(layer: Layer) -> dict[str, Any]:
    options: dict[str, list[dict[str, Any]]] = {}
    for option in layer.options:
        options.setdefault(str(option.tensor_parallel), []).append(_format_option(option))
    name = {} if layer.name is None else {"name": layer.name}
    return {"id": layer.id, **name, "TMPCs": options}


def _format_option(option: Option) -> dict[str, Any]:
    return {
        "id": option.name,
        "timePerSample": option.seconds,
        "parameterSize": option.parameter_bytes,
        "memoryUsageA": option.activation_bytes,
        "memoryUsageB": option.fixed_bytes,
        "syncTimeFw": {str(key): value for key, value in option.input_sync_bytes.items()},
        "syncTimeBw": {str(key): value for key, value in option.output_sync_bytes.items()},
    }
