"""What was measured on a device, as plain figures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

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
    block: MeasuredBlock | None
    """On a CPU, where what operations take beside their work is the host's. None on a GPU, whose
    host is ahead: there products tell what an operation takes at least."""
    allocation: Allocation | None
    """What new large tensors cost, where they do."""


def mean_measurements(several: Sequence[Measurements]) -> Measurements:
    """The means of the same measurements by several processes at once."""
    products = tuple(
        replace(same[0], seconds=fmean(each.seconds for each in same))
        for same in zip(*(each.products for each in several), strict=True)
    )
    attentions = tuple(
        replace(
            same[0],
            forward_seconds=fmean(each.forward_seconds for each in same),
            backward_seconds=fmean(each.backward_seconds for each in same),
        )
        for same in zip(*(each.attentions for each in several), strict=True)
    )
    return Measurements(
        products=products,
        attentions=attentions,
        copy_bytes_per_second=fmean(each.copy_bytes_per_second for each in several),
        memory_bound_bytes_per_second=fmean(each.memory_bound_bytes_per_second for each in several),
        optimizer_bytes_per_second=fmean(each.optimizer_bytes_per_second for each in several),
        block=_mean_block([each.block for each in several if each.block is not None]),
        allocation=several[0].allocation,
    )


def _mean_block(blocks: Sequence[MeasuredBlock]) -> MeasuredBlock | None:
    if not blocks:
        return None
    return replace(blocks[0], seconds=fmean(each.seconds for each in blocks))
