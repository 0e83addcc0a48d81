"""A device between a document and its dataclass: in the package's data and in cluster files."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from diaulos.clusters.device import Allocation, Device, Efficiency, PeakRates, Source, Tile
from diaulos.documents import Value
from diaulos.units import parse_bandwidth, parse_bytes

FIGURES = ("peak", "memory", "memory_bandwidth", "units", "launch_seconds", "tiles", "efficiency")
"""The keys of a device that hold figures; `sources` says where each comes from."""


def parse_device(value: Value, extras: tuple[str, ...] = ()) -> Device:
    """The device of a table; `extras` are keys that it may have besides, for others to read."""
    stated = value.fields(("name", *FIGURES), ("allocation", "sources", *extras))
    with value.context():
        return Device(
            name=stated["name"].text(),
            peak=PeakRates(**_numbers(stated["peak"], PeakRates)),
            memory_bytes=stated["memory"].parsed(parse_bytes),
            memory_bandwidth_bytes_per_second=stated["memory_bandwidth"].parsed(parse_bandwidth),
            units=stated["units"].integer(minimum=1),
            tiles=tuple(_parse_tile(each) for each in stated["tiles"].items()),
            launch_seconds=stated["launch_seconds"].number(),
            efficiency=Efficiency(**_numbers(stated["efficiency"], Efficiency)),
            allocation=_parse_allocation(stated["allocation"]) if "allocation" in stated else None,
            sources=_parse_sources(stated["sources"]) if "sources" in stated else (),
        )


def device_document(device: Device) -> dict[str, Any]:
    """A device as JSON and TOML hold it, sizes in bytes and rates in bytes per second."""
    document: dict[str, Any] = {
        "name": device.name,
        "memory": device.memory_bytes,
        "memory_bandwidth": device.memory_bandwidth_bytes_per_second,
        "units": device.units,
        "launch_seconds": device.launch_seconds,
        "tiles": [[tile.rows, tile.columns, tile.efficiency] for tile in device.tiles],
        "peak": _stated(device.peak),
        "efficiency": _stated(device.efficiency),
    }
    if device.allocation is not None:
        document["allocation"] = {
            "least": device.allocation.least_bytes,
            "bandwidth": device.allocation.bytes_per_second,
        }
    sources = {source.figure: source.text for source in device.sources}
    return document | ({"sources": sources} if sources else {})


def _numbers(value: Value, kind: Callable[..., object]) -> dict[str, float]:
    """The numbers of a table whose keys are the fields of a dataclass, defaults aside."""
    every = fields(kind)  # type: ignore[arg-type]
    needed = tuple(each.name for each in every if each.default is MISSING)
    other = tuple(each.name for each in every if each.default is not MISSING)
    stated = value.fields(needed, other)
    return {name: each.number(above=0) for name, each in stated.items()}


def _parse_tile(value: Value) -> Tile:
    items = value.items()
    if len(items) != 3:
        raise value.error("is no tile", "a tile is [rows, columns, efficiency]")
    rows, columns, efficiency = items
    return Tile(
        rows=rows.integer(minimum=1),
        columns=columns.integer(minimum=1),
        efficiency=efficiency.number(above=0),
    )


def _parse_allocation(value: Value) -> Allocation:
    stated = value.fields(("least", "bandwidth"))
    return Allocation(
        least_bytes=stated["least"].parsed(parse_bytes),
        bytes_per_second=stated["bandwidth"].parsed(parse_bandwidth),
    )


def _parse_sources(value: Value) -> tuple[Source, ...]:
    stated = value.fields((), (*FIGURES, "allocation"))
    return tuple(Source(figure=figure, text=text.text()) for figure, text in stated.items())


def _stated(figures: PeakRates | Efficiency) -> dict[str, float]:
    every = {each.name: getattr(figures, each.name) for each in fields(figures)}
    return {name: value for name, value in every.items() if value is not None}
