"""What was seen of one segment of a model: the kernels of its forward and its backward."""

from collections.abc import Mapping
from dataclasses import dataclass

from diaulos.models.operations import Attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A storage that a kernel reads or writes."""

    key: int
    """The same for all tensors that share a storage."""
    bytes: float
    """That are read or written of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShape:
    """`count` products of [rows, inner] with [inner, columns]."""

    rows: float
    inner: int
    columns: int
    count: int = 1
    weight: int | None = None
    """The key of its weights; None where both factors are activations."""
    stacked: bool = False
    """Whether the weights are a stack of matrices, as those of experts are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel: a matrix product, attention, or work that is bound by memory."""

    name: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    product: ProductShape | None = None
    attention: Attention | None = None
    reduced_rows: float | None = None
    """How many rows it reduces, where it reduces along the last dimension."""
    repeatable: bool = True
    """Whether it gives the same when it runs again, which dropout does not."""

    @property
    def moves_memory(self) -> bool:
        """Whether it is neither a product nor attention."""
        return self.product is None and self.attention is None


@dataclass(frozen=True, kw_only=True)
class Tape:
    """All kernels of a segment in the order in which they ran."""

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    saved: frozenset[int]
    """Keys of what autograd kept for the backward, parameters excepted."""
    sizes: Mapping[int, float]
    """Bytes of each storage, by key."""
    parameters: Mapping[int, str]
    """Names of parameters, by key; of one that is tied, the first name."""
    inputs: tuple[int, ...]
    """Keys of what comes from other segments and needs a gradient; the hidden state first."""
    outputs: tuple[int, ...]
    """Keys of what other segments get with a gradient; the hidden state first."""
    output_gradients: tuple[int, ...]
    """Keys of the gradients that the backward began with."""

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """In the order of the forward."""
        return tuple(step.attention for step in self.forward if step.attention is not None)
