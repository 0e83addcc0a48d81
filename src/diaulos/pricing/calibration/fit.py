"""A device whose predicted times are as near as possible to the measured ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from diaulos.clusters.device import Device, DType, Efficiency, PeakRates, Source, Tile
from diaulos.clusters.device_files import FIGURES
from diaulos.pricing.calibration.block import block_seconds
from diaulos.pricing.calibration.descent import descend, squared_logs
from diaulos.pricing.calibration.measured import MeasuredAttention, MeasuredBlock, Measurements
from diaulos.pricing.devices.attention import AttentionKind, Direction, attention_seconds
from diaulos.pricing.devices.operations import matrix_product_seconds

_FIRST_RAMP = 16.0
_BLOCKS = (64.0, 128.0, 256.0, 512.0, 1024.0)
"""Of fused attention, as kernels have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is not measured but known of a device."""

    name: str
    memory_bytes: float
    units: int
    tiles: tuple[Tile, ...]
    how: str
    """How it was measured: what the sources of its figures say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedDevice:
    """A device, and how far its predictions are from what was measured."""

    device: Device
    product_errors: tuple[float, ...]
    """Predicted over measured, minus 1, of every product."""
    attention_errors: tuple[float, ...]

    @property
    def mean_error(self) -> float:
        """Of all products, without their sign."""
        return fmean(abs(error) for error in self.product_errors)


def fit_device(figures: Figures, measured: Measurements) -> FittedDevice:
    """The device that measurements describe.

    Its peak rates are those that large products were fitted to, so that they reach all of them.
    """
    device = _fit_products(_start(figures, measured), measured)
    device = _fit_attention(device, measured.attentions)
    described = replace(device, allocation=measured.allocation)
    if measured.blocks:
        described = replace(described, launch_seconds=_launch_seconds(described, measured.blocks))
    return FittedDevice(
        device=described,
        product_errors=tuple(ratio - 1 for ratio in _product_ratios(device, measured)),
        attention_errors=tuple(
            ratio - 1
            for direction in Direction
            for ratio in _attention_ratios(device, measured.attentions, direction)
        ),
    )


def _start(figures: Figures, measured: Measurements) -> Device:
    """A device with the figures that are measured as such, and guesses of those to be fitted."""
    copied, other = measured.copy_bytes_per_second, measured.memory_bound_bytes_per_second
    bandwidth = max(copied, other)
    return Device(
        name=figures.name,
        peak=PeakRates(**_best_rates(measured)),
        memory_bytes=figures.memory_bytes,
        memory_bandwidth_bytes_per_second=bandwidth,
        units=figures.units,
        tiles=figures.tiles,
        launch_seconds=min(each.seconds for each in measured.products) / 2,
        efficiency=Efficiency(
            matrix_product=1.0,
            inner_ramp=_FIRST_RAMP,
            memory=other / bandwidth,
            attention_forward=0.5,
            attention_backward=0.5,
            attention_block=_BLOCKS[0],
            optimizer=measured.optimizer_bytes_per_second / bandwidth,
        ),
        sources=tuple(Source(figure=figure, text=figures.how) for figure in FIGURES),
    )


def _best_rates(measured: Measurements) -> dict[str, float]:
    """The best rate of any product, by dtype."""
    dtypes = {each.dtype for each in measured.products}
    return {
        dtype.value: max(p.flops_per_second for p in measured.products if p.dtype is dtype)
        for dtype in DType
        if dtype in dtypes
    }


def _fit_products(device: Device, measured: Measurements) -> Device:
    """The peak rates, the ramp and the launch of a product that fit best."""
    rates = {dtype.value: device.peak_flops_per_second(dtype) for dtype in device.dtypes}
    start = [*rates.values(), device.efficiency.inner_ramp, device.launch_seconds]

    def described(figures: Sequence[float]) -> Device:
        *found, ramp, launch = figures
        return replace(
            device,
            peak=PeakRates(**dict(zip(rates, found, strict=True))),
            efficiency=replace(device.efficiency, inner_ramp=ramp),
            launch_seconds=launch,
        )

    return described(
        descend(start, lambda some: squared_logs(_product_ratios(described(some), measured)))
    )


def _fit_attention(device: Device, attentions: Sequence[MeasuredAttention]) -> Device:
    """The block and the two shares of the peak rate that fit best."""
    forward, backward = Direction

    def described(figures: Sequence[float], block: float) -> Device:
        shares = {"attention_forward": figures[0], "attention_backward": figures[1]}
        return replace(
            device, efficiency=replace(device.efficiency, attention_block=block, **shares)
        )

    def error(candidate: Device) -> float:
        return sum(squared_logs(_attention_ratios(candidate, attentions, way)) for way in Direction)

    candidates = []
    for block in _BLOCKS:
        guess = described([0.5, 0.5], block)
        # Times are inverse to the shares, but for the launch.
        shares = [
            min(0.5 * _geometric_mean(_attention_ratios(guess, attentions, way)), 1.0)
            for way in (forward, backward)
        ]
        candidates.append(described(shares, block))
    return min(candidates, key=error)


def _launch_seconds(device: Device, blocks: Sequence[MeasuredBlock]) -> float:
    """What each operation of a block takes beside its work, if that is all that is left.

    The median of all blocks; not less than what a product by itself takes.
    """
    left = [
        (block.seconds - block_seconds(replace(device, launch_seconds=0.0), block))
        / _launches(device, block)
        for block in blocks
    ]
    return max(median(left), device.launch_seconds)


def _launches(device: Device, block: MeasuredBlock) -> float:
    """Operations of a block, forward and backward."""
    without, with_one = (
        block_seconds(replace(device, launch_seconds=launch), block) for launch in (0.0, 1.0)
    )
    return with_one - without


def _product_ratios(device: Device, measured: Measurements) -> list[float]:
    """Predicted over measured."""
    return [
        matrix_product_seconds(
            device, rows=each.rows, inner=each.inner, columns=each.columns, dtype=each.dtype
        )
        / each.seconds
        for each in measured.products
    ]


def _attention_ratios(
    device: Device, attentions: Sequence[MeasuredAttention], direction: Direction
) -> list[float]:
    """Predicted over measured."""
    return [
        attention_seconds(
            device,
            samples=1,
            heads=each.heads,
            queries=each.length,
            keys=each.length,
            head_size=each.head_size,
            value_size=each.head_size,
            causal=each.causal,
            dtype=each.dtype,
            kind=AttentionKind.FLASH,
            direction=direction,
        )
        / each.seconds(direction)
        for each in attentions
    ]


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(fmean(math.log(ratio) for ratio in ratios))
