"""PipeDream's measured profiles: text with a line for each operator and for each edge.

    node2 -- Conv2d(3, 64) -- forward_compute_time=9.706, backward_compute_time=4.551, \
activation_size=411041792.000, parameter_size=37632.000
    <tab>node2 -- node3

Times are milliseconds of one minibatch of the profile, which is a microbatch here; sizes are
bytes, `activation_size` that of the output (a list where there are several). The profiler and the
planner that read these files: Narayanan et al., SOSP 2019.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diaulos.documents import read_text
from diaulos.errors import InputError
from diaulos.models.graph import Edge, FixedMemory, Layer, LayerGraph, Option

VANILLA, RECOMPUTE = "vanilla", "activation recomp"
"""Names of the options, those of Piper's files, so that a profile can be written as one."""
_SEPARATOR = " -- "
_KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_NODE_RULE = (
    "a node is `<id> -- <description> -- " + ", ".join(f"{key}=<number>" for key in _KEYS) + "`"
)
_EDGE_RULE = "an edge is `<tab><id> -- <id>`"
_MOST_UNEVEN = 4.0
_KEPT_SHARE = 0.09
_IMAGE_SIDES = (224, 299)


def is_pipedream(text: str) -> bool:
    """Whether a text is meant as such a profile, be it right or wrong."""
    return not text.lstrip().startswith("{") and _KEYS[0] in text


def read_pipedream(path: Path, *, batch_size: int | None = None) -> LayerGraph:
    """The layer graph of a profile's file; see `parse_pipedream`."""
    return parse_pipedream(read_text(path), source=str(path), batch_size=batch_size)


def parse_pipedream(text: str, *, source: str, batch_size: int | None = None) -> LayerGraph:
    """The layer graph of a profile, of one microbatch of the profile's minibatch size.

    Layers have the numbers of their nodes as ids and the names of their operators. Two options:
    `vanilla` keeps the layer's output for each microbatch in flight; `activation recomp` runs the
    forward once more and keeps 9 % of it, and the rest once, for the microbatch whose backward
    runs. That share is what Piper's paper took for its version of PipeDream's ResNet-50 profile;
    a profile of single operators does not say it. The fixed memory counts parameters and
    gradients; `with_training_state` adds what an optimizer and weight versions hold.

    As PipeDream's own planner does, `Input` nodes are left out, since what stands there is the
    time of loading data and every stage can load its own, and so are `__getitem__` nodes whose
    output nobody uses. The provenance names them.

    `batch_size` is the number of samples in a minibatch, which the file does not state; without
    it, it is told from the size of an image input where there is one. It stands in the
    provenance and does not change a price.

    Raises `InputError` with the line that breaks a rule, and for profiles whose forward and
    backward times were not measured with the device synchronised.
    """
    lines = [
        _Line(text=line, number=number, source=source)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    ]
    nodes = _nodes([line for line in lines if not line.is_edge])
    edges = _edges([line for line in lines if line.is_edge], nodes)
    inputs, unused = _inputs(nodes, edges), _unused(nodes, edges)
    kept = {key: node for key, node in nodes.items() if key not in {*inputs, *unused}}
    _check_synchronised(kept.values(), source)
    try:
        return _graph(
            kept,
            edges,
            provenance={
                "source": f"PipeDream profile {Path(source).name}",
                "microbatch_size": _microbatch_size([nodes[key] for key in inputs], batch_size),
                "left_out": ", ".join((*inputs, *unused)) or "nothing",
            },
        )
    except InputError as error:
        raise error.at(source) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    text: str
    number: int
    source: str

    @property
    def is_edge(self) -> bool:
        return self.text[0].isspace()

    def error(self, problem: str, rule: str) -> InputError:
        return InputError(problem, rule, where=f"{self.source}: line {self.number}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    description: str
    forward_seconds: float
    backward_seconds: float
    activation_bytes: float
    parameter_bytes: float

    @property
    def operator(self) -> str:
        """The description without its arguments."""
        return self.description.split("(")[0].strip() or self.description

    @property
    def is_free(self) -> bool:
        return self.forward_seconds == self.backward_seconds == self.parameter_bytes == 0


def _nodes(lines: Sequence[_Line]) -> dict[str, _Node]:
    """The nodes by their ids in the file."""
    nodes: dict[str, _Node] = {}
    for line in lines:
        parts = line.text.strip().split(_SEPARATOR)
        if len(parts) not in (3, 4) or (len(parts) == 4 and not _is_stage(parts[3])):
            raise line.error(f"{line.text.strip()!r} is not a node", _NODE_RULE)
        if parts[0] in nodes:
            raise line.error(f"the node {parts[0]} stands twice", "ids are unique")
        nodes[parts[0]] = _node(line, parts[1], parts[2])
    return nodes


def _is_stage(part: str) -> bool:
    """Whether the fourth part of a node is the stage that PipeDream's planner put it in."""
    return re.fullmatch(r"stage_id=\d+", part) is not None


def _node(line: _Line, description: str, metadata: str) -> _Node:
    stated = dict(field.partition("=")[::2] for field in metadata.split(", "))
    if tuple(stated) != _KEYS:
        raise line.error(f"the node states {', '.join(stated)}", _NODE_RULE)
    forward, backward, activations, parameters = (
        _amount(line, key, text) for key, text in stated.items()
    )
    return _Node(
        description=description,
        forward_seconds=forward / 1e3,
        backward_seconds=backward / 1e3,
        activation_bytes=activations,
        parameter_bytes=parameters,
    )


def _amount(line: _Line, key: str, text: str) -> float:
    """A number, or the sum of a list such as `[6291456.0; 131072.0]`."""
    is_list = text.startswith("[") and text.endswith("]")
    try:
        numbers = [float(part) for part in (text[1:-1].split(";") if is_list else [text])]
    except ValueError:
        raise line.error(f"{key} is {text!r}", "it must be a number, or [a; b; ...]") from None
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise line.error(f"{key} is {text!r}", "it must be finite and at least 0")
    return math.fsum(numbers)


def _edges(lines: Sequence[_Line], nodes: Mapping[str, _Node]) -> list[tuple[str, str]]:
    edges: dict[tuple[str, str], int] = {}
    for line in lines:
        ends = line.text.strip().split(_SEPARATOR)
        if len(ends) != 2:
            raise line.error(f"{line.text.strip()!r} is not an edge", _EDGE_RULE)
        for end in ends:
            if end not in nodes:
                raise line.error(f"there is no node {end}", "an edge joins two nodes of the file")
        edge = ends[0], ends[1]
        if edge in edges:
            raise line.error(
                f"the edge {edge[0]} -- {edge[1]} stands twice", f"it stands in line {edges[edge]}"
            )
        edges[edge] = line.number
    return list(edges)


def _inputs(nodes: Mapping[str, _Node], edges: Iterable[tuple[str, str]]) -> list[str]:
    fed = {target for _, target in edges}
    return [
        key
        for key, node in nodes.items()
        if node.description.startswith("Input") and key not in fed
    ]


def _unused(nodes: Mapping[str, _Node], edges: Iterable[tuple[str, str]]) -> list[str]:
    used = {source for source, _ in edges}
    return [
        key
        for key, node in nodes.items()
        if node.description.startswith("__getitem__") and node.is_free and key not in used
    ]


def _check_synchronised(nodes: Iterable[_Node], source: str) -> None:
    """Refuse times that were taken while the device still worked on what came before."""
    times = [(node.forward_seconds, node.backward_seconds) for node in nodes]
    forward, backward = (math.fsum(some) for some in zip(*times, strict=True)) if times else (0, 0)
    if max(forward, backward) > _MOST_UNEVEN * min(forward, backward):
        ratio = f"{backward / forward:.1f} to 1" if forward else "without any forward"
        raise InputError(
            f"all forwards take {forward * 1e3:.1f} ms and all backwards {backward * 1e3:.1f} ms "
            f"({ratio})",
            "a backward does about twice the work of its forward; beyond 4 to 1, either way, the "
            "times were measured without waiting for the device",
            "profile again with a synchronisation before each reading of the clock",
            where=source,
        )


def _microbatch_size(inputs: Sequence[_Node], batch_size: int | None) -> str:
    """As the provenance states it: given, or told from a single input of images."""
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size is {batch_size}", "it must be at least 1")
    sizes = [node.activation_bytes for node in inputs if node.activation_bytes > 0]
    images = [4 * 3 * side**2 for side in _IMAGE_SIDES]
    found = (
        [int(sizes[0] // image) for image in images if sizes[0] % image == 0]
        if len(sizes) == 1
        else []
    )
    if batch_size is not None and found and batch_size not in found:
        raise InputError(
            f"batch_size is {batch_size}",
            f"the input of {sizes[0]:.0f} bytes holds {found[0]} images",
        )
    if batch_size is not None:
        return str(batch_size)
    return str(found[0]) if found else "unknown"


def _graph(
    nodes: Mapping[str, _Node], edges: Iterable[tuple[str, str]], provenance: Mapping[str, str]
) -> LayerGraph:
    ids = _ids(nodes)
    return LayerGraph(
        layers=tuple(
            Layer(id=ids[key], name=nodes[key].operator, options=_options(nodes[key]))
            for key in sorted(nodes, key=ids.__getitem__)
        ),
        edges=tuple(
            Edge(source=ids[source], target=ids[target], bytes=nodes[source].activation_bytes)
            for source, target in edges
            if source in ids and target in ids
        ),
        provenance=provenance,
    )


def _ids(keys: Iterable[str]) -> dict[str, int]:
    """The numbers that the ids end with; where these are no ids, the places in the file."""
    numbers = {key: int(match[0]) for key in keys if (match := re.search(r"[0-9]+$", key))}
    names = list(keys)
    if len(set(numbers.values())) == len(names):
        return numbers
    return {key: place for place, key in enumerate(names)}


def _options(node: _Node) -> tuple[Option, Option]:
    weights = node.parameter_bytes
    forward, backward, held = node.forward_seconds, node.backward_seconds, node.activation_bytes
    return (
        Option(
            name=VANILLA,
            seconds=forward + backward,
            forward_seconds=forward,
            parameter_bytes=weights,
            activation_bytes=held,
            fixed_memory=FixedMemory(parameters_bytes=weights, gradients_bytes=weights),
        ),
        Option(
            name=RECOMPUTE,
            recompute=True,
            seconds=2 * forward + backward,
            forward_seconds=forward,
            parameter_bytes=weights,
            activation_bytes=_KEPT_SHARE * held,
            fixed_memory=FixedMemory(
                parameters_bytes=weights,
                gradients_bytes=weights,
                temporary_bytes=held - _KEPT_SHARE * held,
            ),
        ),
    )
