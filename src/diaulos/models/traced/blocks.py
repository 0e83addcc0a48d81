"""Which modules are the blocks of a model, and which of them are alike."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

_OWN_PLACE = ("layer_i",)
"""What modules call their place among others (`layer_idx`, `layer_id`), which changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block by its place in the model."""

    path: str
    """Of the module."""
    stack: str
    """Of the list that it is in."""
    index: int
    """In the list."""
    module: nn.Module


def find_blocks(
    model: nn.Module, classes: frozenset[str], lists: tuple[type[nn.Module], ...] = (nn.ModuleList,)
) -> tuple[Block, ...]:
    """The members of the outermost lists of modules, of these kinds.

    Where some of them are of one of `classes`, which a model says not to cut, only these count.
    """
    found = tuple(_members(model, "", lists))
    named = tuple(block for block in found if type(block.module).__name__ in classes)
    return named or found


def _members(module: nn.Module, path: str, lists: tuple[type[nn.Module], ...]) -> Iterator[Block]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if isinstance(module, lists):
            yield Block(path=inner, stack=path, index=int(name), module=child)
        else:
            yield from _members(child, inner, lists)


def signature(module: nn.Module, arguments: tuple[Any, Mapping[str, Any]]) -> tuple[object, ...]:
    """Equal for modules that compute the same with parameters of the same shapes."""
    parts: list[object] = []
    for name, part in module.named_modules():
        parts.append((name, type(part), tuple(_plain_values(part))))
        parts.extend((key, p.shape, p.dtype) for key, p in part.named_parameters(recurse=False))
    leaves, form = tree_flatten(arguments)
    shapes = tuple(
        (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else type(leaf) for leaf in leaves
    )
    return (*parts, shapes, str(form))


def _plain_values(module: nn.Module) -> Iterator[tuple[str, object]]:
    for name, value in vars(module).items():
        if isinstance(value, bool | int | float | str | None) and not name.startswith(_OWN_PLACE):
            yield name, value
