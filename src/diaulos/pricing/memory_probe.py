"""Bytes that a computation keeps for its backward, and the most it holds on the way."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def kept_bytes(run: Callable[[], object], *, uncounted: Iterable[Tensor] = ()) -> int:
    """Bytes that the graph of `run()`'s result keeps for the backward.

    A storage counts once and whole, however many views of it are kept, since any of them keeps
    all of it; of a tensor that is split over shards what this process has. Storages of
    `uncounted` tensors (the parameters, say) do not count. Also on the meta device.
    """
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        key, size = _storage(tensor)
        sizes[key] = size
        return tensor.detach()

    with saved_tensors_hooks(note, lambda tensor: tensor):
        result = run()
    # The graph must live until here: a key is a storage's own only as long as that lives.
    left_out = {_storage(tensor)[0] for tensor in uncounted}
    total = sum(size for address, size in sizes.items() if address not in left_out)
    del result
    return total


def _storage(tensor: Tensor) -> tuple[int, int]:
    """A key and the bytes of what this process holds of a tensor."""
    with torch.no_grad():
        held = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    storage = held.untyped_storage()
    return storage._cdata, storage.nbytes()  # noqa: SLF001 - on the meta device all addresses are 0


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes of new tensors alive at one moment of `run()`.

    What existed before does not count, nor what a kernel takes for itself inside.
    """
    tracker = _AllocationTracker()
    with tracker:
        result = run()
    del result
    return tracker.peak_bytes


class _AllocationTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the storages that operators make, from birth to death."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive_bytes = 0
        self.peak_bytes = 0
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = {
            tensor.untyped_storage().data_ptr()
            for tensor in tree_leaves((args, kwargs))
            if isinstance(tensor, Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._note(tensor.untyped_storage(), given)
        return result

    def _note(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        # A view or an in-place result brings nothing new.
        if address in given or address in self._known:
            return
        self.alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)

        def forget(_: object) -> None:
            self.alive_bytes -= size
            self._known.pop(address, None)

        self._known[address] = weakref.ref(storage, forget)
