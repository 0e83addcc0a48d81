"""Devices are found from measurements."""

from dataclasses import replace
from itertools import product

import pytest

from diaulos.clusters.device import Allocation, DType, Efficiency, PeakRates, Tile
from diaulos.pricing.calibration.block import block_seconds
from diaulos.pricing.calibration.fit import Figures, FittedDevice, fit_device
from diaulos.pricing.calibration.measured import (
    MeasuredAttention,
    MeasuredBlock,
    MeasuredProduct,
    Measurements,
    best_measurements,
    mean_measurements,
)
from diaulos.pricing.devices.attention import AttentionKind, Direction, attention_seconds
from diaulos.pricing.devices.operations import matrix_product_seconds
from tests.pricing.devices.plain_device import PLAIN

TRUE = replace(
    PLAIN,
    name="true",
    peak=PeakRates(fp32=1e11, bf16=4e11),
    memory_bandwidth_bytes_per_second=1e11,
    units=1,
    tiles=(Tile(rows=16, columns=16),),
    launch_seconds=4e-6,
    efficiency=Efficiency(
        matrix_product=1.0,
        inner_ramp=24,
        memory=0.3,
        attention_forward=0.8,
        attention_backward=0.6,
        attention_block=512,
        optimizer=0.1,
    ),
)
FIGURES = Figures(
    name="found", memory_bytes=1e9, units=1, tiles=TRUE.tiles, how="measured by arithmetic"
)


def measured_product(dtype: DType, rows: int, inner: int, columns: int) -> MeasuredProduct:
    """What the true device would take."""
    seconds = matrix_product_seconds(TRUE, rows=rows, inner=inner, columns=columns, dtype=dtype)
    return MeasuredProduct(dtype=dtype, rows=rows, inner=inner, columns=columns, seconds=seconds)


def measured_attention(length: int, head_size: int, *, causal: bool) -> MeasuredAttention:
    """What the true device would take."""
    forward, backward = (
        attention_seconds(
            TRUE,
            samples=1,
            heads=8,
            queries=length,
            keys=length,
            head_size=head_size,
            value_size=head_size,
            causal=causal,
            dtype=DType.FP32,
            kind=AttentionKind.FLASH,
            direction=direction,
        )
        for direction in Direction
    )
    return MeasuredAttention(
        dtype=DType.FP32,
        heads=8,
        length=length,
        head_size=head_size,
        causal=causal,
        forward_seconds=forward,
        backward_seconds=backward,
    )


LAUNCH_SECONDS = 6e-6
SMALL = MeasuredBlock(width=64, heads=2, length=32, seconds=1.0)
SMALL_SECONDS = block_seconds(replace(TRUE, launch_seconds=LAUNCH_SECONDS), SMALL)
MEASURED = Measurements(
    products=tuple(
        measured_product(dtype, *sizes)
        for dtype in (DType.FP32, DType.BF16)
        for sizes in product((128, 384, 1024), repeat=3)
    ),
    attentions=tuple(
        measured_attention(length, head_size, causal=causal)
        for length, head_size, causal in product((256, 1024), (64, 128), (False, True))
    ),
    copy_bytes_per_second=1e11,
    memory_bound_bytes_per_second=3e10,
    optimizer_bytes_per_second=1e10,
    blocks=(replace(SMALL, seconds=SMALL_SECONDS),),
    allocation=Allocation(least_bytes=2**25, bytes_per_second=3e9),
)


@pytest.fixture(scope="module")
def found() -> FittedDevice:
    """From what the true device would take."""
    return fit_device(FIGURES, MEASURED)


def test_the_device_that_was_measured_is_found(found: FittedDevice) -> None:
    """Rates, ramp and attention come out as they went in; the rest is taken as measured."""
    device = found.device
    assert device.peak.fp32 == pytest.approx(1e11, rel=0.02)
    assert device.peak.bf16 == pytest.approx(4e11, rel=0.02)
    assert device.efficiency.inner_ramp == pytest.approx(24, abs=6)
    assert device.efficiency.attention_block == 512
    assert device.efficiency.attention_forward == pytest.approx(0.8, rel=0.03)
    assert device.efficiency.attention_backward == pytest.approx(0.6, rel=0.03)
    assert (device.memory_bandwidth_bytes_per_second, device.efficiency.memory) == (1e11, 0.3)
    assert device.efficiency.optimizer == pytest.approx(0.1)
    assert device.launch_seconds == pytest.approx(LAUNCH_SECONDS, rel=0.05)
    assert device.allocation == MEASURED.allocation
    assert device.dtypes == (DType.FP32, DType.BF16)


def test_errors_say_how_near_the_fit_is(found: FittedDevice) -> None:
    """One for each product and each way of each attention, here all but 0."""
    assert len(found.product_errors) == len(MEASURED.products)
    assert len(found.attention_errors) == 2 * len(MEASURED.attentions)
    assert max(abs(error) for error in found.product_errors) < 0.02
    assert max(abs(error) for error in found.attention_errors) < 0.05


def test_sources_say_how_it_was_measured(found: FittedDevice) -> None:
    """Every figure has a source."""
    assert {source.text for source in found.device.sources} == {"measured by arithmetic"}


def test_attention_faster_than_products_stays_a_share() -> None:
    """Where fused attention beats products, its share is 1."""
    fast = tuple(
        replace(each, forward_seconds=each.forward_seconds / 4) for each in MEASURED.attentions
    )
    found = fit_device(FIGURES, replace(MEASURED, attentions=fast))
    assert found.device.efficiency.attention_forward == 1


def test_several_processes_are_averaged() -> None:
    """Twice as slow and as measured: the mean of both, entry by entry."""
    slow = replace(
        MEASURED,
        products=tuple(replace(each, seconds=2 * each.seconds) for each in MEASURED.products),
        blocks=(replace(SMALL, seconds=2.0),),
    )
    mean = mean_measurements([MEASURED, slow])
    assert mean.products[3].seconds == pytest.approx(1.5 * MEASURED.products[3].seconds)
    assert mean.blocks[0].seconds == pytest.approx(1 + SMALL_SECONDS / 2)
    assert mean_measurements([MEASURED]) == MEASURED


def test_the_fastest_of_several_times_counts() -> None:
    """What was slow for a while is as it was when it was not."""
    slow = tuple(replace(each, seconds=3 * each.seconds) for each in MEASURED.products)
    busy = replace(MEASURED, products=slow, optimizer_bytes_per_second=1e9)
    assert best_measurements([busy, MEASURED]) == MEASURED


def test_without_blocks_the_launch_is_that_of_products() -> None:
    """On a GPU the host is ahead, so that products tell what an operation takes at least."""
    found = fit_device(FIGURES, replace(MEASURED, blocks=()))
    assert found.device.launch_seconds == pytest.approx(TRUE.launch_seconds, rel=0.1)
    assert mean_measurements([replace(MEASURED, blocks=())]).blocks == ()
