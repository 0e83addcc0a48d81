"""A device whose times can be worked out by hand."""

from diaulos.clusters.device import Device, Efficiency, PeakRates, Tile

PLAIN = Device(
    name="plain",
    peak=PeakRates(fp32=1e12, bf16=2e12),
    memory_bytes=1e9,
    memory_bandwidth_bytes_per_second=1e9,
    units=4,
    tiles=(Tile(rows=64, columns=64),),
    launch_seconds=1e-6,
    efficiency=Efficiency(
        matrix_product=0.5,
        inner_ramp=10,
        memory=0.8,
        attention_forward=0.4,
        attention_backward=0.2,
        attention_block=64,
        optimizer=0.4,
    ),
)
"""4 units of 0.25 TFLOP/s in fp32, half of which products reach; 1 GB/s."""
