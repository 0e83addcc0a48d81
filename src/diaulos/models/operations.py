"""What a layer computes, keeps and exchanges for one microbatch, before any of it is split.

This is all that pricing knows of a model. Every way to run a layer follows from it: tensor,
sequence, context and expert parallelism, recomputation, and how attention is computed. All figures
are those of the whole layer on one device.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One microbatch."""

    microbatch_size: int
    """In samples."""
    sequence_length: int
    """In positions of each sample."""
    element_bytes: float = 2.0
    """Of an activation: 2 for bf16 and fp16, also where products are in fp8; 4 for fp32."""

    def __post_init__(self) -> None:
        for name in ("microbatch_size", "sequence_length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        _check_above_zero("element_bytes", self.element_bytes)

    @property
    def tokens(self) -> int:
        """Positions of all samples."""
        return self.microbatch_size * self.sequence_length


class Region(Enum):
    """Which share of a tensor, or of work on it, a device of a tensor-parallel group has."""

    SPLIT = "split"
    """1/t: its heads, its features or its part of the vocabulary."""
    WHOLE = "whole"
    """All of it; with sequence parallelism 1/t, its share of the positions."""
    EXPERTS = "experts"
    """1/t of the experts that expert parallelism puts on the device. For parameters alone: of
    what experts compute and keep, a device has 1/t, since as many tokens come as go."""


class Split(Enum):
    """Along what tensor parallelism splits a product of [rows, inner] with [inner, columns]."""

    COLUMNS = "columns"
    """A column-parallel product: the input is whole, the output split."""
    INNER = "inner"
    """A row-parallel product: the input is split, the output a sum over the group."""
    NONE = "none"
    """Not at all: each device computes all, or with sequence parallelism 1/t of the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """`count` products of [rows, inner] with weights of [inner, columns].

    Forward one product; backward two of the same FLOPs, for the input's gradient and the weights'.
    Context parallelism divides the rows. Those of experts (`count` of them, of which expert
    parallelism e leaves count/e on a device) have e times the rows then.
    """

    name: str
    rows: float
    """Tokens; of experts, the tokens that come to each of them on average."""
    inner: int
    columns: int
    count: int = 1
    split: Split
    experts: bool = False
    """Whether the count is one of experts, which expert parallelism divides."""

    def __post_init__(self) -> None:
        for name in ("rows", "inner", "columns", "count"):
            _check_above_zero(f"{name} of the product {self.name!r}", getattr(self, name))

    @property
    def flops(self) -> float:
        """Of the forward."""
        return 2.0 * self.rows * self.inner * self.columns * self.count

    def output_bytes(self, element_bytes: float) -> float:
        """Of what it makes."""
        return self.rows * self.columns * self.count * element_bytes

    @property
    def output_region(self) -> Region:
        """Whether a device of a tensor-parallel group holds a share of the output or all."""
        return Region.SPLIT if self.split is Split.COLUMNS else Region.WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """softmax(Q K^T) V of a microbatch; split by heads, and by positions in context parallelism.

    Flash or plain is a choice of pricing. What the kernel keeps for the backward beside Q, K, V and
    its output is not among the layer's `saved`: with plain attention the scores after softmax, with
    dropout also its mask and its output (5 a s^2 b bytes in all in half precision; Korthikanti et
    al., MLSys 2023); with flash attention four bytes of each query and head.
    """

    samples: int
    heads: int
    key_value_heads: int
    queries: int
    keys: int
    score_size: int
    """Elements of a query and a key, of one head."""
    value_size: int
    """Elements of a value, of one head."""
    causal: bool = True
    window: int | None = None
    """How many keys a query sees at most; None for all."""
    dropout: bool = False

    def __post_init__(self) -> None:
        names = ("samples", "heads", "key_value_heads", "queries", "keys", "score_size")
        for name in (*names, "value_size"):
            _check_above_zero(f"{name} of an attention", getattr(self, name))
        if self.heads % self.key_value_heads:
            raise InputError(
                f"an attention has {self.heads} heads and {self.key_value_heads} key-value heads",
                "heads must be a multiple of key-value heads",
            )

    @property
    def flops(self) -> float:
        """Of the forward, with the masked half counted, as published FLOP rates count it."""
        return self.pairs * 2.0 * (self.score_size + self.value_size)

    @property
    def pairs(self) -> float:
        """Queries times keys of all heads and samples, masked ones included."""
        return float(self.samples) * self.heads * self.queries * self.keys

    @property
    def seen_share(self) -> float:
        """The share of all pairs that the mask and the window leave."""
        span = self.keys if self.window is None else min(self.window, self.keys)
        seen = float(self.queries * span)
        if self.causal:
            seen -= span * (span - 1) / 2
        return min(seen / (self.queries * self.keys), 1.0)

    def key_value_bytes(self, element_bytes: float) -> float:
        """Of all keys and values, which context parallelism passes round."""
        size = self.score_size + self.value_size
        return float(self.samples) * self.keys * self.key_value_heads * size * element_bytes

    def output_bytes(self, element_bytes: float) -> float:
        """Of what it makes."""
        return float(self.samples) * self.queries * self.heads * self.value_size * element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes that kernels read and write in device memory, and how many kernels there are."""

    forward_bytes: float
    backward_bytes: float
    forward_kernels: int = 1
    backward_kernels: int = 1

    def __post_init__(self) -> None:
        for name in ("forward_bytes", "backward_bytes", "forward_kernels", "backward_kernels"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                problem = f"{name} is {getattr(self, name)!r}"
                raise InputError(problem, "it must be finite and at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBound:
    """Work whose time is that of moving bytes: norms, activation functions, dropout, sums."""

    name: str
    region: Region
    fused: Traffic
    """With the fused kernels that training frameworks bring or a compiler makes."""
    unfused: Traffic
    """With one kernel for each operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """A tensor that the forward keeps for the backward where nothing is recomputed."""

    name: str
    bytes: float
    region: Region

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bytes) and self.bytes >= 0):
            problem = f"the saved tensor {self.name!r} has {self.bytes!r} bytes"
            raise InputError(problem, "it must be finite and at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of one kind."""

    name: str
    count: int
    region: Region
    tied_to: str | None = None
    """The layer that owns them, where it is another; they are one tensor then, held twice where
    the two layers are on different stages, and summed at every step."""

    def __post_init__(self) -> None:
        _check_above_zero(f"count of the parameters {self.name!r}", self.count)


class Border(Enum):
    """Which border of split work a tensor crosses; what a group of t then exchanges.

    ============ =================== ============== ============================ ==============
    .            forward             with SP        backward                     with SP
    ============ =================== ============== ============================ ==============
    ENTERING     nothing             all-gather     all-reduce                   all-gather (the
                                                                                 input again),
                                                                                 reduce-scatter
    LEAVING      all-reduce          reduce-scatter nothing                      all-gather
    ============ =================== ============== ============================ ==============

    (SP: sequence parallelism; Korthikanti et al., MLSys 2023, section 4.2.2.)
    """

    ENTERING = "entering"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A tensor that crosses a border between whole and split work."""

    border: Border
    bytes: float
    """Of the whole tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Tokens that go to the devices of their experts and come back: forward twice, backward twice.

    An all-to-all of the expert-parallel group each time.
    """

    bytes: float
    """Of all copies of all tokens, one way."""


@dataclass(frozen=True, kw_only=True)
class LayerOperations:
    """All that one microbatch costs in a layer; equal layers of a model share one object."""

    products: tuple[MatrixProduct, ...] = ()
    """In the order of the forward."""
    attentions: tuple[Attention, ...] = ()
    memory_bound: tuple[MemoryBound, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    """Beside what attention keeps; the layer's input is among them if its backward needs it."""
    temporary: tuple[SavedTensor, ...] = ()
    """The largest set of tensors alive at one moment of the backward that are not in `saved`."""
    parameters: tuple[Parameters, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    input_bytes: float
    """Of the activations that enter: what full recomputation keeps. 0 for the embedding."""
    output_bytes: float
    """Of what is handed to the next layer, with what goes past that; `Region.WHOLE`."""
    recomputable: bool = True
    """Whether recomputation applies: it does to blocks, not to the ends of a model."""

    @cached_property
    def product_flops(self) -> float:
        """Of the matrix products, forward."""
        return sum(product.flops for product in self.products)

    @cached_property
    def attention_flops(self) -> float:
        """Of attention, forward, with the masked half counted."""
        return sum(attention.flops for attention in self.attentions)

    @property
    def forward_flops(self) -> float:
        """Of the model, forward."""
        return self.product_flops + self.attention_flops

    @property
    def model_flops(self) -> float:
        """Of the model, forward and backward, whatever is recomputed: what MFU counts."""
        return 3.0 * self.forward_flops

    @cached_property
    def parameter_count(self) -> int:
        """Its own parameters; those of another layer that it is tied to do not count."""
        return sum(some.count for some in self.parameters if some.tied_to is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLayer:
    """A layer by name."""

    name: str
    operations: LayerOperations


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A tensor that a layer hands to one that is not its next: an encoder's output, for one."""

    source: str
    target: str
    bytes: float


def passing_bytes(layers: Sequence[str], skips: Iterable[Skip]) -> list[float]:
    """Of what goes past the border behind each layer, each tensor of a source once."""
    places = {name: place for place, name in enumerate(layers)}
    ends: dict[tuple[str, float], int] = {}
    for skip in skips:
        tensor = (skip.source, skip.bytes)
        ends[tensor] = max(ends.get(tensor, 0), places[skip.target])
    return [
        sum(size for (source, size), end in ends.items() if places[source] <= place < end)
        for place in range(len(layers))
    ]


@dataclass(frozen=True, kw_only=True)
class ModelOperations:
    """A model for one workload: a chain of layers, input end first, and what goes past some."""

    name: str
    workload: Workload
    layers: tuple[ModelLayer, ...]
    heads: int
    """That tensor parallelism must divide."""
    experts: int = 1
    """That expert parallelism must divide."""
    skips: tuple[Skip, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("the model has no layers", "it needs at least one")
        names = {layer.name for layer in self.layers}
        if len(names) < len(self.layers):
            raise InputError("two layers of the model have one name", "names are unique")
        for owner in self._owners():
            if owner not in names:
                problem = f"parameters are tied to the layer {owner!r}"
                raise InputError(problem, f"the model has {', '.join(sorted(names))}")
        places = {layer.name: place for place, layer in enumerate(self.layers)}
        for skip in self.skips:
            if not places.get(skip.source, len(places)) < places.get(skip.target, 0):
                problem = f"a tensor goes from {skip.source!r} to {skip.target!r}"
                raise InputError(problem, "both are layers, the source before the target")

    @cached_property
    def parameter_count(self) -> int:
        """All parameters, tied ones once."""
        return sum(layer.operations.parameter_count for layer in self.layers)

    @cached_property
    def model_flops(self) -> float:
        """Of one microbatch, forward and backward without recomputation."""
        return sum(layer.operations.model_flops for layer in self.layers)

    def _owners(self) -> Iterator[str]:
        for layer in self.layers:
            for some in layer.operations.parameters:
                if some.tied_to is not None:
                    yield some.tied_to


Model = Callable[[Workload], ModelOperations]
"""A model: what it computes for any microbatch."""


def _check_above_zero(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} is {value!r}", "it must be finite and above 0")
