"""What was measured on a device, as plain figures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from diaulos.clusters.device import Allocation, DType
from diaulos.pricing.devices.attention import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProduct:
    """A matrix product [rows, inner] x [inner, columns]."""

    dtype: DType
    rows: int
    inner: int
    columns: int
    seconds: float

    @property
    def flops_per_second(self) -> float:
        """That were reached."""
        return 2.0 * self.rows * self.inner * self.columns / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttention:
    """Fused attention of one sample, forward and backward."""

    dtype: DType
    heads: int
    length: int
    head_size: int
    causal: bool
    forward_seconds: float
    backward_seconds: float

    def seconds(self, direction: Direction) -> float:
        """Of one way."""
        forward = direction is Direction.FORWARD
        return self.forward_seconds if forward else self.backward_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBlock:
    """A small transformer block in fp32, one sample forward and backward.

    Most of its time is what operations take beside their work.
    """

    width: int
    heads: int
    length: int
    seconds: float


Timed = TypeVar("Timed", MeasuredProduct, MeasuredBlock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """All that a device is described from."""

    products: tuple[MeasuredProduct, ...]
    attentions: tuple[MeasuredAttention, ...]
    copy_bytes_per_second: float
    """Of copies, read and written bytes together."""
    memory_bound_bytes_per_second: float
    """Of norms, activation functions, sums and losses, with what they read and write once."""
    optimizer_bytes_per_second: float
    """Of AdamW's step in fp32, which reads 16 bytes for each parameter and writes 12."""
    blocks: tuple[MeasuredBlock, ...]
    """On a CPU, where what operations take beside their work is the host's. None on a GPU, whose
    host is ahead: there products tell what an operation takes at least."""
    allocation: Allocation | None
    """What new large tensors cost, where they do."""


def mean_measurements(several: Sequence[Measurements]) -> Measurements:
    """The means of the same measurements by several processes at once."""
    return _combined(several, seconds=fmean, rate=fmean)


def best_measurements(several: Sequence[Measurements]) -> Measurements:
    """The fastest of the same measurements at several times: what others slowed down is left."""
    return _combined(several, seconds=min, rate=max)


_Choice = Callable[[Iterable[float]], float]


def _combined(several: Sequence[Measurements], *, seconds: _Choice, rate: _Choice) -> Measurements:
    return Measurements(
        products=_each([some.products for some in several], seconds),
        attentions=tuple(
            replace(
                same[0],
                forward_seconds=seconds(each.forward_seconds for each in same),
                backward_seconds=seconds(each.backward_seconds for each in same),
            )
            for same in zip(*(some.attentions for some in several), strict=True)
        ),
        copy_bytes_per_second=rate(some.copy_bytes_per_second for some in several),
        memory_bound_bytes_per_second=rate(some.memory_bound_bytes_per_second for some in several),
        optimizer_bytes_per_second=rate(some.optimizer_bytes_per_second for some in several),
        blocks=_each([some.blocks for some in several], seconds),
        allocation=several[0].allocation,
    )


def _each(several: Sequence[tuple[Timed, ...]], seconds: _Choice) -> tuple[Timed, ...]:
    """Entry by entry."""
    return tuple(
        replace(same[0], seconds=seconds(each.seconds for each in same))
        for same in zip(*several, strict=True)
    )
