"""A model run once on the meta device, cut into segments that are each run back apart."""

import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from diaulos.errors import InputError
from diaulos.models.operations import Workload
from diaulos.models.traced.blocks import Block, signature
from diaulos.models.traced.noted import NotedAttention
from diaulos.models.traced.recorder import Recorder
from diaulos.models.traced.tape import Tape

_DTYPES = {2: torch.bfloat16, 4: torch.float32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A tensor that a segment gets from one that is not the segment before."""

    segment: int
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A block, or what runs between blocks."""

    tape: Tape
    """Blocks that are alike share one."""
    block: Block | None = None
    is_head: bool = False
    """Whether it is the head, with what runs after it."""
    traced_path: str = ""
    """Of the block that was traced, which this one is like."""
    further: tuple[Source, ...] = ()


def trace(
    model: nn.Module,
    recorder: Recorder,
    blocks: Iterable[Block],
    head: nn.Module | None,
    run: Callable[[], Any],
) -> list[Segment]:
    """All segments of the model, in the order in which they run when `run` calls it."""
    tracer = _Tracer(model, recorder)
    patched: list[nn.Module] = []
    for block in blocks:
        block.module.forward = partial(tracer.run_block, block, block.module.forward)
        patched.append(block.module)
    if head is not None:
        head.forward = partial(tracer.run_head, head.forward)
        patched.append(head)
    try:
        with torch.device("meta"), NotedAttention(recorder), recorder.keeping():
            tracer.finish(run(), has_head=head is not None)
    finally:
        for module in patched:
            del module.forward
    return tracer.segments


def element_dtype(workload: Workload) -> torch.dtype:
    """Of activations."""
    if workload.element_bytes not in _DTYPES:
        raise InputError(f"element_bytes is {workload.element_bytes}", "it must be 2 or 4")
    return _DTYPES[int(workload.element_bytes)]


@contextmanager
def without_data(module: nn.Module) -> Iterator[None]:
    """What a module says that does not run without data, as an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(
            f"{type(module).__name__} cannot be traced without data",
            f"it says {in_short(error)}",
            "measure it with diaulos profile",
        ) from error


def in_short(error: Exception) -> str:
    """What an error of torch or transformers says, in short."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 200)


class _Tracer:
    """Takes the place of the forward of blocks and head, to begin and end segments there."""

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        self._parameters = dict(model.named_parameters())
        self._recorder = recorder
        self._inputs: list[Tensor] = []
        self._makers: dict[int, int] = {}
        self._held: list[Tensor] = []  # so that an id stays that of one tensor
        self._alike: dict[tuple[object, ...], tuple[Tape, Any, str]] = {}
        self.segments: list[Segment] = []

    def run_block(
        self, block: Block, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """End what ran before; note the block, or that it is like one before."""
        entering = list(_with_gradients((args, kwargs)))
        self._close(entering)
        key = signature(block.module, (args, kwargs))
        if key not in self._alike:
            self._alike[key] = (*self._trace_block(forward, args, kwargs), block.path)
        tape, leaving, path = self._alike[key]
        self.segments.append(
            Segment(tape=tape, block=block, traced_path=path, further=self._further(entering))
        )
        return self._open(leaving, entering)

    def run_head(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """End what ran before; the head goes on until the model ends."""
        self._close(list(_with_gradients((args, kwargs))))
        args, kwargs = _cut((args, kwargs))
        self._inputs = list(_with_gradients((args, kwargs)))
        return forward(*args, **kwargs)

    def finish(self, result: Any, *, has_head: bool) -> None:
        """End the last segment."""
        self._close(list(_with_gradients(result)), is_head=has_head)

    def _trace_block(
        self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tape, Any]:
        """The tape and what the block gives, with the number of an input where it gives that."""
        args, kwargs = _cut((args, kwargs))
        entering = list(_with_gradients((args, kwargs)))
        self._recorder.begin()
        result = forward(*args, **kwargs)
        places = {id(tensor): place for place, tensor in enumerate(entering)}
        made = [tensor for tensor in _with_gradients(result) if id(tensor) not in places]
        tape = self._recorder.end(entering, made, self._back_to(entering))
        return tape, tree_map(lambda leaf: places.get(id(leaf), leaf), result)

    def _open(self, leaving: Any, entering: list[Tensor]) -> Any:
        """What a block gives, as the start of the next segment."""
        result = _cut(leaving)
        self._recorder.begin()
        self._inputs = list(_with_gradients(result))
        self._note_made(self._inputs)
        return tree_map(lambda leaf: entering[leaf] if isinstance(leaf, int) else leaf, result)

    def _close(self, leaving: list[Tensor], *, is_head: bool = False) -> None:
        """End the segment that gives these tensors, if it made any of them."""
        fresh = [t for t in leaving if t.grad_fn is not None and id(t) not in self._makers]
        if fresh:
            tape = self._recorder.end(self._inputs, fresh, self._back_to(self._inputs))
            self.segments.append(Segment(tape=tape, is_head=is_head))
            self._note_made(fresh)

    def _note_made(self, tensors: list[Tensor]) -> None:
        self._held.extend(tensors)
        self._makers.update((id(tensor), len(self.segments) - 1) for tensor in tensors)

    def _further(self, entering: list[Tensor]) -> tuple[Source, ...]:
        """Where tensors come from that the segment before did not make."""
        last = len(self.segments) - 1
        makers = ((tensor, self._makers.get(id(tensor), last)) for tensor in entering)
        return tuple(
            Source(segment=maker, bytes=tensor.nbytes) for tensor, maker in makers if maker < last
        )

    def _back_to(
        self, inputs: list[Tensor]
    ) -> Callable[[list[Tensor], list[Tensor], frozenset[str]], None]:
        """The backward of a segment with these inputs: back to them, and no further.

        A tensor of an earlier segment may be used again, and has been run back then.
        """

        def backward(outputs: list[Tensor], gradients: list[Tensor], used: frozenset[str]) -> None:
            weights = [self._parameters[name] for name in sorted(used)]
            ends = [*inputs, *(weight for weight in weights if weight.requires_grad)]
            if outputs and ends:
                torch.autograd.backward(outputs, gradients, inputs=ends)
            for weight in weights:
                weight.grad = None

        return backward


def _with_gradients(values: Any) -> Iterator[Tensor]:
    """The tensors that need one, each once."""
    seen: set[int] = set()
    for leaf in tree_leaves(values):
        if isinstance(leaf, Tensor) and leaf.requires_grad and id(leaf) not in seen:
            seen.add(id(leaf))
            yield leaf


def _cut(values: Any) -> Any:
    """The same with tensors that begin a graph of their own."""
    made: dict[int, Tensor] = {}

    def start(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.requires_grad:
            return leaf
        if id(leaf) not in made:
            made[id(leaf)] = leaf.detach().requires_grad_()
        return made[id(leaf)]

    return tree_map(start, values)
