"""Which layer reads what another one made: the edges of a model's graph."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diaulos.pricing.chain import Chain


def tensor_edges(chain: Chain) -> dict[tuple[int, int], int]:
    """Bytes of the tensors that a layer makes and another one reads, by their positions.

    What layers pass on without reading it makes no edge of theirs. A layer that reads nothing
    stands in line: it gets what the one before gives.
    """
    makers: dict[int, int] = {}
    edges: dict[tuple[int, int], int] = {}
    hidden, held = chain.inputs, []
    for position in range(len(chain.modules)):
        reader = _Reader()
        with torch.no_grad(), reader:
            leaving = chain.run(position, hidden, recompute=False)
        entering = {_address(tensor): tensor.nbytes for tensor in hidden}
        read = {address: size for address, size in entering.items() if address in reader.read}
        for address, size in (read or entering).items():
            if address in makers:
                ends = (makers[address], position)
                edges[ends] = edges.get(ends, 0) + size
        for tensor in leaving:
            if not read or _address(tensor) not in entering or _address(tensor) not in makers:
                makers[_address(tensor)] = position
        held.append(leaving)  # so that an address is that of one storage
        hidden = leaving
    return edges


class _Reader(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the storages that operators read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        self.read.update(map(_address, given))
        return func(*args, **(kwargs or {}))


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
