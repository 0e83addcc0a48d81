"""A graph cut into runs of nodes, each a module of its own."""

import operator
from collections.abc import Sequence

from torch import Tensor, fx, nn
from torch.fx import GraphModule, Node

from diaulos.errors import InputError


def cut_graph(
    graph: GraphModule, module: nn.Module, cuts: Sequence[str], *, explicit: bool
) -> dict[str, nn.Module]:
    """Modules by name that one after another do what the graph does.

    A new one begins where a module of `cuts` first runs; where they are `explicit`, each must.
    """
    starts = _starts(graph, cuts)
    missing = [cut for cut in cuts if cut not in starts.values()]
    if explicit and missing:
        raise InputError(f"{', '.join(missing)} never run", "cuts are names of modules that do")
    names, layers = _layers(graph, starts)
    lives = _lives(graph, layers)
    owned = dict(module.named_parameters(remove_duplicate=False))
    entering = [node for node in graph.graph.nodes if node.op == "placeholder" and _is_tensor(node)]
    made: dict[str, nn.Module] = {}
    for place, name in enumerate(names):
        is_last = place == len(names) - 1
        leaving = _outputs(graph) if is_last else _crossing(graph, layers, lives, place)
        run = [node for node, layer in layers.items() if layer == place]
        made[name] = _module(graph, run, entering, leaving, owned)
        entering = leaving
    return made


def _starts(graph: GraphModule, cuts: Sequence[str]) -> dict[Node, str]:
    """The node at which each of the modules first runs."""
    starts: dict[Node, str] = {}
    for node in graph.graph.nodes:
        stack = node.meta.get("nn_module_stack", {})
        if node.op in ("call_function", "call_module"):
            paths = [path for path, _ in stack.values()]
            for cut in cuts:
                if cut not in starts.values() and cut in paths:
                    starts[node] = cut
    return starts


def _layers(graph: GraphModule, starts: dict[Node, str]) -> tuple[list[str], dict[Node, int]]:
    """The layers' names, and the layer of each node that computes."""
    names = [cut.replace(".", "_") for cut in starts.values()] or ["whole"]
    layers: dict[Node, int] = {}
    place, begun = 0, 0
    for node in graph.graph.nodes:
        if node in starts:
            place, begun = begun, begun + 1
        if node.op in ("call_function", "call_module"):
            layers[node] = place
    for node in layers:  # parts of a tuple stand where it is made: tensors alone pass on
        if node.target is operator.getitem:
            layers[node] = layers[node.args[0]]  # type: ignore[index]
    return names, layers


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), Tensor)


def _outputs(graph: GraphModule) -> list[Node]:
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    return list(output.all_input_nodes)


def _lives(graph: GraphModule, layers: dict[Node, int]) -> dict[Node, int]:
    """The last layer that uses each value; the one behind all for what the module gives."""
    last: dict[Node, int] = dict.fromkeys(_outputs(graph), len(layers))
    for node, layer in layers.items():
        for used in node.all_input_nodes:
            last[used] = max(last.get(used, layer), layer)
    return last


def _crossing(
    graph: GraphModule, layers: dict[Node, int], lives: dict[Node, int], place: int
) -> list[Node]:
    """What passes from a layer to the next: what is there by then and used later."""
    found = []
    for node in graph.graph.nodes:
        born = layers.get(node, -1 if node.op == "placeholder" else None)
        if born is not None and born <= place < lives.get(node, -1):
            if not _is_tensor(node):
                raise InputError(
                    f"{node.name} passes from layer to layer and is no tensor",
                    "numbers that depend on the data cannot be sent",
                    "cut elsewhere",
                )
            found.append(node)
    return found


def _module(
    graph: GraphModule,
    run: Sequence[Node],
    entering: Sequence[Node],
    leaving: Sequence[Node],
    owned: dict[str, nn.Parameter],
) -> GraphModule:
    """A run of nodes as a module, with what it has of the module's weights and constants."""
    part = fx.Graph()
    copies = {node: part.placeholder(f"entering_{i}") for i, node in enumerate(entering)}
    attributes: dict[str, nn.Module | Tensor] = {}

    def copied(node: Node) -> Node:
        if node not in copies:
            assert node.op == "get_attr", node
            copies[node] = part.get_attr(str(node.target))
            attributes[str(node.target)] = owned.get(str(node.target), _attribute(graph, node))
        return copies[node]

    for node in run:
        copies[node] = part.node_copy(node, copied)
        copies[node].meta = {}  # where it came from is of no use to ranks
        if node.op == "call_module":
            attributes[str(node.target)] = graph.get_submodule(str(node.target))
    part.output(tuple(map(copied, leaving)))
    return GraphModule(dict(attributes), part)


def _attribute(graph: GraphModule, node: Node) -> Tensor:
    found: object = graph
    for name in str(node.target).split("."):
        found = getattr(found, name)
    if not isinstance(found, Tensor):
        raise InputError(
            f"{node.target} is no tensor",
            "control flow inside of a graph cannot be cut",
        )
    return found
