"""Seconds of single operations on a device: matrix products and work bound by memory.

The model is the roofline (Williams et al., CACM 2009): an operation takes as long as the slower of
its computation and its memory traffic. On top of it, a product is computed in tiles, as many at a
time as the device has matrix units, and a last wave of few tiles takes as long as a full one.
"""

import math

from diaulos.clusters.device import Device, DType, Tile

_RESULT_SHARE = 1 / 3
"""Of the bytes that a launch moves, those of a result that it makes: a sum reads two tensors and
writes one."""


def matrix_product_seconds(
    device: Device, *, rows: float, inner: float, columns: float, dtype: DType, count: float = 1
) -> float:
    """Seconds of `count` products [rows, inner] x [inner, columns] in one launch.

    Sizes may be means, such as the tokens that come to an expert.
    """
    compute = min(
        _tiled_seconds(device, tile, (rows, inner, columns), dtype, count) for tile in device.tiles
    )
    elements = rows * inner + inner * columns + rows * columns
    traffic = _streaming_seconds(device, count * elements * dtype.bytes)
    allocation = _allocation_seconds(device, count * rows * columns * dtype.bytes)
    return device.launch_seconds + max(compute, traffic) + allocation


def memory_bound_seconds(device: Device, *, size_bytes: float, launches: int = 1) -> float:
    """Seconds of work that reads and writes `size_bytes` in all, in equal launches."""
    if size_bytes == 0:
        return 0.0
    result_bytes = size_bytes * _RESULT_SHARE / launches
    each = device.launch_seconds + _allocation_seconds(device, result_bytes)
    return launches * each + _streaming_seconds(device, size_bytes)


def optimizer_seconds(device: Device, *, size_bytes: float, launches: int = 1) -> float:
    """Seconds of an optimizer's step that reads and writes `size_bytes` in all.

    AdamW with parameters, gradients and both moments in fp32 reads 16 bytes for each parameter
    and writes 12; one that keeps bf16 weights beside them writes 2 more.
    """
    if size_bytes == 0:
        return 0.0
    rate = device.memory_bandwidth_bytes_per_second * device.efficiency.optimizer
    return launches * device.launch_seconds + size_bytes / rate


def _tiled_seconds(
    device: Device, tile: Tile, sizes: tuple[float, float, float], dtype: DType, count: float
) -> float:
    rows, inner, columns = sizes
    tiles = count * math.ceil(rows / tile.rows) * math.ceil(columns / tile.columns)
    waves = math.ceil(tiles / device.units)
    operations = 2 * tile.rows * tile.columns * (inner + device.efficiency.inner_ramp)
    share = device.efficiency.matrix_product * tile.efficiency
    return waves * operations * device.units / (device.peak_flops_per_second(dtype) * share)


def _streaming_seconds(device: Device, size_bytes: float) -> float:
    return size_bytes / (device.memory_bandwidth_bytes_per_second * device.efficiency.memory)


def _allocation_seconds(device: Device, result_bytes: float) -> float:
    """Of getting the memory of a result, where the system must give it page by page."""
    allocation = device.allocation
    if allocation is None or result_bytes < allocation.least_bytes:
        return 0.0
    return result_bytes / allocation.bytes_per_second
