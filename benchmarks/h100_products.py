"""How the constants of the H100's matrix products were found, and how good they are.

Usage: python benchmarks/h100_products.py

The share of the peak rate, the ramp, the launch and the ratios of three smaller tiles are fitted
to 32 measured products; 30 others are held out. All are from OpenXLA,
xla/service/gpu/model/matmul_interpolator_data.h: H100, bf16.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.device import Device, DType, Tile
from diaulos.pricing.calibration.descent import descend, squared_logs
from diaulos.pricing.devices.operations import matrix_product_seconds

Products = Mapping[tuple[int, int, int, int], float]
"""TFLOP/s by count, rows, columns and inner size."""

FITTED: Products = {
    (1, 256, 256, 1024): 19.46,
    (1, 512, 512, 1024): 71.24,
    (1, 1024, 1024, 256): 82.0,
    (1, 1024, 1024, 4096): 470.1,
    (1, 2048, 2048, 4096): 738.0,
    (1, 4096, 4096, 1024): 677.4,
    (1, 4096, 2048, 1024): 593.2,
    (1, 2048, 1024, 4096): 653.1,
    (1, 2048, 512, 4096): 451.2,
    (1, 1024, 4096, 2048): 634.2,
    (1, 512, 4096, 4096): 644.1,
    (1, 4096, 256, 4096): 376.2,
    (1, 256, 2048, 2048): 215.8,
    (1, 256, 1024, 2048): 119.0,
    (1, 512, 2048, 512): 143.4,
    (1, 512, 4096, 256): 134.2,
    (1, 2048, 512, 256): 83.9,
    (4, 2048, 2048, 4096): 779.1,
    (2, 2048, 4096, 4096): 779.3,
    (4, 4096, 4096, 1024): 725.5,
    (4, 2048, 2048, 256): 394.8,
    (4, 512, 512, 512): 142.2,
    (4, 512, 4096, 512): 442.2,
    (2, 2048, 2048, 512): 447.0,
    (4, 256, 2048, 512): 228.7,
    (2, 4096, 1024, 2048): 713.4,
    (4, 512, 1024, 1024): 375.4,
    (2, 1024, 2048, 512): 339.8,
    (4, 256, 4096, 4096): 664.0,
    (2, 512, 512, 4096): 312.1,
    (4, 1024, 512, 4096): 642.2,
    (2, 256, 512, 256): 22.3,
}
HELD_OUT: Products = {
    (1, 256, 256, 2048): 31.1,
    (1, 512, 512, 2048): 114.7,
    (1, 512, 1024, 2048): 216.5,
    (1, 512, 2048, 1024): 232.6,
    (1, 1024, 256, 4096): 169.7,
    (1, 1024, 2048, 1024): 373.3,
    (1, 1024, 2048, 2048): 524.3,
    (1, 1024, 4096, 1024): 490.3,
    (1, 2048, 256, 4096): 307.5,
    (1, 2048, 4096, 1024): 594.2,
    (1, 4096, 512, 256): 142.5,
    (1, 4096, 512, 4096): 650.0,
    (1, 4096, 1024, 1024): 488.1,
    (1, 4096, 1024, 4096): 738.5,
    (1, 4096, 4096, 512): 543.1,
    (1, 4096, 4096, 2048): 738.7,
    (2, 512, 4096, 1024): 486.7,
    (2, 1024, 512, 2048): 347.7,
    (2, 2048, 256, 1024): 217.2,
    (2, 2048, 2048, 2048): 717.7,
    (2, 4096, 2048, 512): 546.4,
    (2, 4096, 4096, 4096): 807.7,
    (4, 256, 256, 4096): 171.6,
    (4, 512, 2048, 2048): 629.4,
    (4, 1024, 256, 512): 135.8,
    (4, 2048, 512, 2048): 621.4,
    (4, 2048, 2048, 1024): 674.0,
    (4, 4096, 1024, 256): 393.3,
    (4, 4096, 2048, 4096): 808.7,
    (4, 4096, 4096, 256): 503.9,
}


def described(device: Device, figures: Sequence[float]) -> Device:
    """The device with other constants."""
    share, ramp, launch, square, narrow, small = figures
    tiles = (
        Tile(rows=256, columns=128),
        Tile(rows=128, columns=256),
        Tile(rows=128, columns=128, efficiency=square),
        Tile(rows=128, columns=64, efficiency=narrow),
        Tile(rows=64, columns=128, efficiency=narrow),
        Tile(rows=64, columns=64, efficiency=small),
    )
    # A share above 1 is no device; the descent never ends there.
    efficiency = replace(device.efficiency, matrix_product=min(share, 1.0), inner_ramp=ramp)
    return replace(device, efficiency=efficiency, launch_seconds=launch, tiles=tiles)


def ratios(device: Device, products: Products) -> list[float]:
    """Predicted over measured seconds."""
    found = []
    for (count, rows, columns, inner), tflops in products.items():
        seconds = matrix_product_seconds(
            device, rows=rows, inner=inner, columns=columns, count=count, dtype=DType.BF16
        )
        found.append(seconds * tflops * 1e12 / (2.0 * count * rows * columns * inner))
    return found


def main() -> None:
    """Print the constants that fit best, and the errors of those that the package has."""
    device = known_device("H100-80GB").device
    start = (0.8, 100.0, 2e-6, 0.9, 0.7, 0.5)
    best = descend(start, lambda some: squared_logs(ratios(described(device, some), FITTED)))
    names = ("share", "ramp", "launch", "128x128", "128x64", "64x64")
    print("best fit:", ", ".join(f"{n} {v:.3g}" for n, v in zip(names, best, strict=True)))
    for name, products in (("fitted", FITTED), ("held out", HELD_OUT)):
        errors = [math.fabs(ratio - 1) for ratio in ratios(device, products)]
        mean = math.fsum(errors) / len(errors)
        print(f"{len(errors)} {name}: {mean:.1%} off on average, {max(errors):.1%} at worst")


if __name__ == "__main__":
    main()
