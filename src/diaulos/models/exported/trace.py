"""A module's graph, made so that any run of its nodes can stand alone."""

import operator
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from diaulos.errors import InputError

_DROPOUTS = ("aten.dropout.default", "aten.native_dropout.default")
_ATTENTION = "scaled_dot_product_attention"
_DROPPED_SHARE = 4
"""The argument of torch's attention that says what share of it is left out."""


def trace(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> GraphModule:
    """The graph of a module for arguments of this form.

    Without changes in place, with dropout that follows the mode of its layer, and with what
    depends on no input as a constant.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about itself
        graph = _exported(module, arguments, keywords)
    for node in [node for node in graph.graph.nodes if str(node.target) in _DROPOUTS]:
        _replace_dropout(graph, node)
    for node in list(graph.graph.nodes):
        _make_free(graph, node)
    return graph


def _exported(
    module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> GraphModule:
    try:
        program = torch.export.export(module, arguments, keywords)
    except Exception as error:
        message = str(error).strip().splitlines()
        raise InputError(
            f"torch.export cannot trace {type(module).__name__}: {message[0] if message else ''}",
            "its forward must be one graph for all inputs of the same form",
            "give its parts as a list of modules instead",
        ) from error
    if any(_is_mutable(node) for node in program.graph.nodes):
        program = program.run_decompositions({})
    changed = program.graph_signature.buffers_to_mutate.values()
    if changed:
        raise InputError(
            f"{type(module).__name__} changes its buffers {', '.join(changed)}",
            "statistics of microbatches are not those of batches, and recomputation repeats them",
            "take norms without running statistics, or export in eval mode",
        )
    graph = program.module(check_guards=False)
    assert isinstance(graph, GraphModule)
    return graph


def _is_mutable(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _make_free(graph: GraphModule, node: Node) -> None:
    """Change one node so that it needs nothing but its inputs."""
    if node.op != "call_function":
        return
    name = str(node.target)
    if "_assert" in name or "_guards" in name:
        graph.graph.erase_node(node)
    elif _ATTENTION in name and _dropped(node):
        raise InputError(
            f"attention leaves out a share of {_dropped(node)}",
            "the exported operation would do so in evaluations too",
            "leave dropout_p at 0, or apply dropout as a module",
        )
    elif _is_constant(node):
        _make_constant(graph, node)
    else:
        _follow_inputs(node)


def _follow_inputs(node: Node) -> None:
    """Compute where the inputs are, and not where the module was traced."""
    node.kwargs = {key: value for key, value in node.kwargs.items() if key != "device"}
    if node.target is torch.ops.aten.to.device:
        entering, _, *others = node.args
        node.target, node.args = torch.ops.aten.to.dtype, (entering, *others)


def _dropped(node: Node) -> Any:
    if len(node.args) > _DROPPED_SHARE:
        return node.args[_DROPPED_SHARE]
    return node.kwargs.get("dropout_p", 0.0)


def _is_constant(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    is_random = torch.Tag.nondeterministic_seeded in tags
    is_tensor = isinstance(node.meta.get("val"), Tensor)
    return is_tensor and not is_random and not node.all_input_nodes


def _replace_dropout(graph: GraphModule, node: Node) -> None:
    entering, share, is_training = node.args
    if not is_training:
        share = 0.0
    results = [user for user in node.users if user.target is operator.getitem] or [node]
    graph.add_submodule(f"of_{node.name}", nn.Dropout(float(share)))  # type: ignore[arg-type]
    with graph.graph.inserting_before(node):
        new = graph.graph.call_module(f"of_{node.name}", (entering,))
    _put_in_place(graph, results[0], new)
    if results[0] is not node:
        graph.graph.erase_node(node)


def _make_constant(graph: GraphModule, node: Node) -> None:
    """Positions, causal masks and such, made once: on the device that the layer will be on."""
    keywords = {**node.kwargs, "device": torch.device("cpu")} if "device" in node.kwargs else {}
    assert callable(node.target)
    value = node.target(*node.args, **(keywords or node.kwargs))
    graph.register_buffer(f"of_{node.name}", value, persistent=False)
    with graph.graph.inserting_before(node):
        new = graph.graph.get_attr(f"of_{node.name}")
    _put_in_place(graph, node, new)


def _put_in_place(graph: GraphModule, old: Node, new: Node) -> None:
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    graph.graph.erase_node(old)
