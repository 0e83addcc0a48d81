"""The operations that a device is described from, measured one by one."""

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, product
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from diaulos.clusters.device import Allocation, DType
from diaulos.models.gpt import Block, GPTConfig
from diaulos.pricing.calibration.measured import (
    MeasuredAttention,
    MeasuredBlock,
    MeasuredProduct,
    Measurements,
    best_measurements,
)
from diaulos.pricing.calibration.timing import Timer

_TORCH = {DType.FP32: torch.float32, DType.BF16: torch.bfloat16, DType.FP16: torch.float16}
_SIZES = {"cpu": (128, 384, 1024), "cuda": (256, 1024, 4096)}
"""Of products, each for rows, inner and columns."""
_WIDE = {"cpu": 4096, "cuda": 16384}
"""Columns of some more products, such as those of a head."""
_LENGTHS = {"cpu": (256, 1024), "cuda": (1024, 4096)}
_HIDDEN = {"cpu": ((256, 256), (512, 512), (1024, 1024)), "cuda": ((8192, 4096),)}
"""Rows and columns of what memory-bound work reads, about as large as activations are."""
_OPTIMIZED = {"cpu": 256, "cuda": 2048}
"""Width of the blocks whose weights an optimizer steps."""
_BLOCKS = 3
_COPIED = {"cpu": 2**20, "cuda": 2**28}
"""Elements."""
_HEAD_SIZES = (64, 128)
_UNCACHED = {"cpu": 2**24, "cuda": 2**28}
"""Elements of the operands that products take by turns, more than caches hold."""
_ROUNDS = 2
_MOST_SETS = 300
_SETTLING = 31 * 2**18
"""Elements: just below the largest tensors whose memory glibc learns to keep."""
_SMALL: Mapping[str, tuple[tuple[int, int, int], ...]] = MappingProxyType(
    {"cpu": ((64, 2, 64), (96, 3, 96), (192, 3, 64), (192, 6, 128)), "cuda": ()}
)
"""Width, heads and length of small blocks."""
_CHAIN = 8
"""Small blocks in a row."""
_ALLOCATED_BYTES = tuple(2**power for power in range(27, 19, -1))
_MUCH = 2.5
"""How much longer a new tensor takes than an old one if the system gives its memory anew."""


def measure(device: torch.device, *, dtypes: tuple[DType, ...], threads: int) -> Measurements:
    """All that a device is described from, measured twice; takes about half a minute.

    Attention is measured in the first of the dtypes.
    """
    probe = _Probe(device, Timer(device, threads=threads))
    return best_measurements([_measure_once(probe, device, dtypes) for _ in range(_ROUNDS)])


def _measure_once(probe: "_Probe", device: torch.device, dtypes: tuple[DType, ...]) -> Measurements:
    return Measurements(
        products=tuple(
            probe.product(dtype, *sizes) for dtype in dtypes for sizes in _product_sizes(device)
        ),
        attentions=tuple(
            probe.attention(dtypes[0], length, head_size, causal=causal)
            for length, head_size, causal in product(
                _LENGTHS[device.type], _HEAD_SIZES, (False, True)
            )
        ),
        copy_bytes_per_second=probe.copies(),
        memory_bound_bytes_per_second=probe.memory_bound(),
        optimizer_bytes_per_second=probe.optimizer(),
        blocks=tuple(probe.block(*sizes) for sizes in _SMALL[device.type]),
        allocation=probe.allocation() if device.type == "cpu" else None,
    )


def _product_sizes(device: torch.device) -> Iterator[tuple[int, int, int]]:
    """Rows, inner and columns."""
    sizes, wide = _SIZES[device.type], _WIDE[device.type]
    yield from product(sizes, repeat=3)
    yield from ((rows, inner, wide) for rows, inner in product(sizes[1:], repeat=2))


class _Probe:
    """Measures on one device."""

    def __init__(self, device: torch.device, timer: Timer) -> None:
        self._device = device
        self._timer = timer
        self._uncached = self._random(_UNCACHED[device.type])
        # An allocator that has given back so much keeps what is smaller, as in a long training.
        torch.zeros(_SETTLING, device=device)

    def product(self, dtype: DType, rows: int, inner: int, columns: int) -> MeasuredProduct:
        """A linear layer's; its operands are not in the caches, as in training."""
        count = min(len(self._uncached) // ((rows + columns) * inner), _MOST_SETS)
        lefts, weights = self._operands(dtype, count, (rows, inner), (columns, inner))
        operands = cycle(zip(lefts, weights, strict=True))
        seconds = self._timer.seconds(lambda: functional.linear(*next(operands)))
        return MeasuredProduct(
            dtype=dtype, rows=rows, inner=inner, columns=columns, seconds=seconds
        )

    def _operands(
        self, dtype: DType, count: int, *shapes: tuple[int, int]
    ) -> Iterator[tuple[Tensor, ...]]:
        """So many tensors of each shape, next to each other in memory."""
        start = 0
        for rows, columns in shapes:
            end = start + count * rows * columns
            yield self._uncached[start:end].view(count, rows, columns).to(_TORCH[dtype]).unbind()
            start = end

    def attention(
        self,
        dtype: DType,
        length: int,
        head_size: int,
        causal: bool,  # noqa: FBT001
    ) -> MeasuredAttention:
        """Fused attention of as many heads as make 512 elements."""
        heads = 512 // head_size
        shape = (1, heads, length, head_size)
        inputs = [self._random(*shape, dtype=_TORCH[dtype], trained=True) for _ in range(3)]
        query, key, value = inputs

        def forward() -> Tensor:
            return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

        forward_seconds, backward_seconds = self._both_ways(forward, inputs)
        return MeasuredAttention(
            dtype=dtype,
            heads=heads,
            length=length,
            head_size=head_size,
            causal=causal,
            forward_seconds=forward_seconds,
            backward_seconds=backward_seconds,
        )

    def copies(self) -> float:
        """Bytes read and written in a second."""
        source = self._random(_COPIED[self._device.type])
        target = torch.empty_like(source)
        seconds = self._timer.seconds(lambda: target.copy_(source))
        return 2 * source.nbytes / seconds

    def memory_bound(self) -> float:
        """Of a block's norms, activation function and sums, as often as a block has them."""
        moved = seconds = 0.0
        for rows, columns in _HIDDEN[self._device.type]:
            for size_bytes, taken in self._block_work(rows, columns):
                moved += size_bytes
                seconds += taken
        return moved / seconds

    def optimizer(self) -> float:
        """Bytes read and written in a second of AdamW's step on the weights of a few blocks."""
        width = _OPTIMIZED[self._device.type]
        shapes = [(width, width)] * 4 + [(4 * width, width)] * 2 + [(width,)] * 10
        weights = [nn.Parameter(self._random(*shape)) for shape in shapes * _BLOCKS]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        seconds = self._timer.seconds(torch.optim.AdamW(weights).step)
        return 28 * sum(weight.numel() for weight in weights) / seconds

    def block(self, width: int, heads: int, length: int) -> MeasuredBlock:
        """Small blocks one after the other, forward and backward, as training runs them."""
        config = GPTConfig(layers=_CHAIN, width=width, heads=heads, sequence_length=length)
        blocks = [Block(config).to(self._device) for _ in range(_CHAIN)]
        inputs = self._random(1, length, width)

        def step() -> None:
            hidden: Tensor = inputs
            for block in blocks:
                hidden = block(hidden)
            torch.autograd.backward(hidden, inputs)

        step()  # the first makes the gradients that later ones add to
        seconds = self._timer.seconds(step) / _CHAIN
        return MeasuredBlock(width=width, heads=heads, length=length, seconds=seconds)

    def allocation(self) -> Allocation | None:
        """What writing to a new tensor takes beside writing to an old one, where it is much."""
        found = None
        for size_bytes in _ALLOCATED_BYTES:  # from the largest down, until it is not much
            old, new = self._writing(size_bytes)
            if new < _MUCH * old:
                break
            # An allocator that gives back one tensor of this size gives back two of half of it
            # that are freed together, as those of a microbatch are.
            found = Allocation(
                least_bytes=size_bytes / 2, bytes_per_second=size_bytes / (new - old)
            )
        return found

    def _writing(self, size_bytes: int) -> tuple[float, float]:
        """Seconds of a sum that goes to an old tensor, and to a new one."""
        source = torch.zeros(size_bytes // 4)
        target = torch.empty_like(source)
        old = self._timer.seconds(lambda: torch.add(source, source, out=target))
        return old, self._timer.seconds(lambda: source + source)

    def _block_work(self, rows: int, columns: int) -> Iterator[tuple[float, float]]:
        """Bytes and seconds of each kind of work, both ways, as often as a block does it."""
        size = 4.0 * rows * columns
        hidden = self._random(rows, columns, trained=True)
        wide = self._random(rows, 4 * columns, trained=True)
        norm = nn.LayerNorm(columns, device=self._device)
        trained = [hidden, *norm.parameters()]
        forward, backward = self._both_ways(lambda: norm(hidden), trained)
        yield 2 * 7 * size, 2 * (forward + backward)
        forward, backward = self._both_ways(lambda: functional.gelu(wide), [wide])
        yield 4 * 5 * size, forward + backward
        plain = hidden.detach()
        yield 4 * 3 * size, 4 * self._timer.seconds(lambda: plain + plain)

    def _both_ways(self, run: Callable[[], Tensor], trained: list[Tensor]) -> tuple[float, float]:
        """Seconds of a forward and of its backward."""
        result = run()
        gradient = torch.ones_like(result)

        def backward() -> None:
            torch.autograd.grad(result, trained, gradient, retain_graph=True)

        with torch.no_grad():
            forward = self._timer.seconds(run)
        return forward, self._timer.seconds(backward)

    def _random(
        self, *shape: int, dtype: torch.dtype = torch.float32, trained: bool = False
    ) -> Tensor:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        return drawn.to(self._device, dtype).requires_grad_(trained)
