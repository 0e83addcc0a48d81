"""Watches kernels on the meta device and notes what each reads, writes and computes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diaulos.models.operations import Attention
from diaulos.models.traced.products import product_shape
from diaulos.models.traced.tape import Access, ProductShape, Step, Tape

_GATHERS = frozenset({"embedding", "index", "index_select", "gather", "take_along_dim"})
"""Read as much of their first tensor as they write."""
_REDUCTIONS = frozenset(
    {"mean", "sum", "var", "var_mean", "linalg_vector_norm", "native_layer_norm", "argsort",
     "_fused_rms_norm", "_softmax", "_log_softmax", "topk", "sort", "logsumexp", "amax", "max"}
)  # fmt: skip
"""Want whole rows, where they go along the last dimension."""
_RANDOM = frozenset({"native_dropout", "bernoulli", "bernoulli_", "rand_like", "randn_like"})


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes kernels while it is entered, for one segment after another.

    `experts` says of a tensor of this many experts times this many tokens, which models have that
    let all experts compute all tokens, that only so many experts of each token count.
    """

    def __init__(self, names: Mapping[Tensor, str], dense_experts: tuple[int, int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {_address(tensor): name for tensor, name in names.items()}
        self._dense_experts = dense_experts
        self._keys: dict[int, int] = {}
        self._held: list[torch.UntypedStorage] = []
        self._sizes: dict[int, float] = {}
        self._parameters: dict[int, str] = {}
        self._masks: set[int] = set()
        self._steps: list[Step] = []
        self._saved: set[int] = set()
        self._in_backward = False

    def begin(self) -> None:
        """Start a segment."""
        self._steps, self._saved = [], set()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Notes kernels, and what autograd keeps for their backward."""
        with self, saved_tensors_hooks(self._note_saved, lambda tensor: tensor):
            yield

    def end(
        self,
        inputs: Iterable[Tensor],
        outputs: Iterable[Tensor],
        backward: Callable[[list[Tensor], list[Tensor], frozenset[str]], None],
    ) -> Tape:
        """The tape of the segment, whose `backward` is run from its outputs and their gradients.

        It is told the names of the parameters that the forward read.
        """
        forward, saved = tuple(self._steps), frozenset(self._saved - self._parameters.keys())
        leaving = list(outputs)
        gradients = [torch.empty_like(tensor) for tensor in leaving]
        self._steps, self._in_backward = [], True
        used = {some.key for step in forward for some in step.reads} & self._parameters.keys()
        backward(leaving, gradients, frozenset(self._parameters[key] for key in used))
        self._in_backward = False
        tape = Tape(
            forward=forward,
            backward=tuple(self._steps),
            saved=saved,
            sizes=dict(self._sizes),
            parameters=dict(self._parameters),
            inputs=tuple(self.key(tensor) for tensor in inputs),
            outputs=tuple(self.key(tensor) for tensor in leaving),
            output_gradients=tuple(self.key(tensor) for tensor in gradients),
        )
        self.begin()
        return tape

    def attend(self, attention: Attention, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """Note attention, or its backward, which is not run."""
        self._note("attention", given, made, attention=attention)

    def key(self, tensor: Tensor) -> int:
        """Of the storage; a storage that is seen once stays, so that its address is its own."""
        address = _address(tensor)
        if address not in self._keys:
            key = len(self._held)
            self._keys[address] = key
            self._held.append(tensor.untyped_storage())
            self._sizes[key] = self._storage_bytes(tensor)
            if address in self._names:
                self._parameters[key] = self._names[address]
        return self._keys[address]

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        packet = getattr(func, "overloadpacket", None)
        name = packet.__name__ if packet is not None else str(func)
        run = _grouped if name == "_grouped_mm" else func
        result = run(*args, **(kwargs or {}))
        given = [some for some in tree_leaves((args, kwargs)) if isinstance(some, Tensor)]
        made = [some for some in tree_leaves(result) if isinstance(some, Tensor)]
        if given and made and not name.startswith(("empty", "new_empty", "detach")):
            self._note_call(func, name, args, given, made)
        return result

    def _note_call(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        given: list[Tensor],
        made: list[Tensor],
    ) -> None:
        known = {_address(tensor) for tensor in given}
        if name == "bernoulli_":  # dropout on a device keeps a byte of each element
            self._masks.update(map(_address, made))
        new = [tensor for tensor in made if _address(tensor) not in known]
        in_place = func._schema.is_mutable  # type: ignore[attr-defined]  # noqa: SLF001
        if not new and not in_place:
            return  # a view
        self._note(
            name,
            given,
            made if in_place else new,
            product=self._product(name, given, made),
            reduced_rows=_reduced_rows(name, args),
        )

    def _product(self, name: str, given: list[Tensor], made: list[Tensor]) -> ProductShape | None:
        """None also of what is computed without gradients, such as tables of positions."""
        if not (self._in_backward or torch.is_grad_enabled()):
            return None
        shape = product_shape(name, given, made, self._weight)
        if shape is None or not shape.stacked:
            return shape
        return replace(shape, rows=shape.rows * self._counted_share(made[0].shape))

    def _note(
        self,
        name: str,
        given: Sequence[Tensor],
        made: Sequence[Tensor],
        **facts: Any,
    ) -> None:
        reads = {self.key(tensor): self._bytes(tensor) for tensor in given}
        if name in _GATHERS:
            first = self.key(given[0])
            reads[first] = min(reads[first], sum(map(self._bytes, made)))
        self._steps.append(
            Step(
                name=name,
                reads=tuple(Access(key=key, bytes=size) for key, size in reads.items()),
                writes=tuple(Access(key=self.key(t), bytes=self._bytes(t)) for t in made),
                repeatable=name not in _RANDOM,
                **facts,
            )
        )

    def _note_saved(self, tensor: Tensor) -> Tensor:
        self._saved.add(self.key(tensor))
        return tensor

    def _weight(self, tensor: Tensor) -> int | None:
        key = self.key(tensor)
        return key if key in self._parameters else None

    def _bytes(self, tensor: Tensor) -> float:
        """Of a tensor, or of its storage where it is smaller, as with one that is expanded."""
        if _address(tensor) in self._masks:
            return tensor.numel()
        return min(tensor.nbytes * self._counted_share(tensor.shape), self._storage_bytes(tensor))

    def _storage_bytes(self, tensor: Tensor) -> float:
        """Of all that a tensor keeps alive, of which it may be a view."""
        whole = tensor.untyped_storage().nbytes()
        if _address(tensor) in self._masks:
            return whole / tensor.element_size()
        return whole * self._counted_share(tensor.shape)

    def _counted_share(self, shape: torch.Size) -> float:
        experts, active, tokens = self._dense_experts
        if experts == 1 or not shape:
            return 1.0
        stacked = len(shape) > 1 and tuple(shape[:2]) == (experts, tokens)
        return active / experts if stacked or shape[0] == experts * tokens else 1.0


def _grouped(left: Tensor, right: Tensor, *more: Any, **kwargs: Any) -> Tensor:
    """A grouped product of any type; the meta device has that of bf16 alone."""
    halves = (left.to(torch.bfloat16), right.to(torch.bfloat16))
    return torch._grouped_mm(*halves, *more, **kwargs).to(left.dtype)  # noqa: SLF001


def _address(tensor: Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata  # noqa: SLF001
    return address


def _reduced_rows(name: str, args: tuple[Any, ...]) -> float | None:
    if name not in _REDUCTIONS or not args or not isinstance(args[0], Tensor) or not args[0].dim():
        return None
    tensor = args[0]
    last = tensor.dim() - 1
    dims = next((arg for arg in args[1:] if isinstance(arg, int | list | tuple)), [-1])
    if name in ("topk", "sort", "native_layer_norm", "_fused_rms_norm", "argsort"):
        dims = [-1]
    wanted = {dim % tensor.dim() for dim in ([dims] if isinstance(dims, int) else dims)}
    if last not in wanted:
        return None
    return tensor.numel() / max(math.prod(tensor.shape[dim] for dim in wanted), 1)
