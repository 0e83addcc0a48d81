"""What `diaulos calibrate` found, as a table and as JSON."""

from typing import Any

from rich.table import Table

from diaulos.clusters.cluster import Cluster
from diaulos.clusters.device import Device
from diaulos.units import format_bytes, format_seconds


def calibration_table(cluster: Cluster) -> Table:
    """A row for each figure of the measured device and its link."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    for figure, value in _rows(cluster):
        table.add_row(figure, value)
    return table


def error_document(errors: tuple[float, ...]) -> dict[str, Any]:
    """How far predictions are from measurements, without their sign."""
    sizes = sorted(abs(error) for error in errors)
    return {"count": len(sizes), "mean": sum(sizes) / len(sizes), "worst": sizes[-1]}


def _rows(cluster: Cluster) -> list[tuple[str, str]]:
    group = cluster.groups[0]
    device = group.device
    assert device is not None
    bandwidth = device.memory_bandwidth_bytes_per_second
    link = group.link
    rows = [(f"products in {name}", f"{rate / 1e9:.4g} GFLOP/s") for name, rate in _rates(device)]
    rows += [
        ("copies, read and written", f"{bandwidth / 1e9:.4g} GB/s"),
        ("norms, activations, sums", f"{bandwidth * device.efficiency.memory / 1e9:.4g} GB/s"),
        ("optimizer", f"{bandwidth * device.efficiency.optimizer / 1e9:.4g} GB/s"),
        ("attention, forward", f"{device.efficiency.attention_forward:.1%} of products"),
        ("attention, backward", f"{device.efficiency.attention_backward:.1%} of products"),
        ("an operation beside its work", format_seconds(device.launch_seconds)),
        ("messages", f"{link.bandwidth_bytes_per_second / 1e9:.4g} GB/s"),
        ("latency of a message", format_seconds(link.latency_seconds)),
        ("memory of a device", format_bytes(group.memory_bytes)),
    ]
    if device.allocation is not None:
        least = format_bytes(device.allocation.least_bytes)
        rate = device.allocation.bytes_per_second / 1e9
        rows.insert(-3, (f"memory for new tensors from {least} on", f"{rate:.4g} GB/s"))
    return rows


def _rates(device: Device) -> list[tuple[str, float]]:
    return [(dtype.value, device.peak_flops_per_second(dtype)) for dtype in device.dtypes]
