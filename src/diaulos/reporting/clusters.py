"""The devices that the package knows as a table, as JSON, and with their sources."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from diaulos.clusters.catalogue import KnownDevice
from diaulos.clusters.device import DType
from diaulos.clusters.device_files import device_document
from diaulos.clusters.files import link_document
from diaulos.units import format_bytes

_RATES = (DType.FP32, DType.TF32, DType.BF16, DType.FP16, DType.FP8)
_LINKS = ("devices", "inside", "network")


def devices_table(devices: Sequence[KnownDevice]) -> Table:
    """A row for each device: memory, dense TFLOP/s by dtype, its usual node and the links there.

    The bandwidths of links are those that collectives reach, one way and for each device.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("device", no_wrap=True)
    for heading in ("memory", "bandwidth", *(dtype.value for dtype in _RATES)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("node", no_wrap=True)
    for heading in _LINKS:
        table.add_column(heading, justify="right", no_wrap=True)
    for known in devices:
        table.add_row(*_row(known))
    return table


def device_documents(devices: Sequence[KnownDevice]) -> list[dict[str, Any]]:
    """What is known of each device and its node, sizes in bytes and rates per second."""
    return [
        {
            **device_document(known.device),
            "node": {
                "name": known.node.name,
                "devices": known.node.devices,
                "inside": link_document(known.node.inside),
                "network": link_document(known.node.network),
                "sources": {source.figure: source.text for source in known.node.sources},
            },
        }
        for known in devices
    ]


def sources_lines(devices: Sequence[KnownDevice]) -> Iterator[str]:
    """Where each figure of each device and its node comes from, a line each."""
    for known in devices:
        yield known.device.name
        for source in known.device.sources:
            yield f"  {source.figure}: {source.text}"
        for source in known.node.sources:
            yield f"  {source.figure} of {known.node.name}: {source.text}"


def _row(known: KnownDevice) -> tuple[str, ...]:
    device, node = known.device, known.node
    return (
        device.name,
        format_bytes(device.memory_bytes),
        _rate(device.memory_bandwidth_bytes_per_second),
        *(_teraflops(known, dtype) for dtype in _RATES),
        node.name,
        str(node.devices),
        _rate(node.inside.bandwidth_bytes_per_second),
        _rate(node.network.bandwidth_bytes_per_second),
    )


def _teraflops(known: KnownDevice, dtype: DType) -> str:
    rate = getattr(known.device.peak, dtype.value)
    return "-" if rate is None else f"{rate / 1e12:.4g}"


def _rate(bytes_per_second: float) -> str:
    """In decimal units, as data sheets give rates."""
    if bytes_per_second >= 1e12:
        return f"{bytes_per_second / 1e12:.4g} TB"
    return f"{bytes_per_second / 1e9:.4g} GB"
