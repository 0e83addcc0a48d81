"""An estimate as a document, and as tables for people."""

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from diaulos.estimating.estimate import Estimate
from diaulos.estimating.memory import RankMemory
from diaulos.units import format_bytes, format_seconds

_KINDS = (*(field.name for field in fields(RankMemory)), "total")


def estimate_document(found: Estimate) -> dict[str, Any]:
    """The estimate as JSON, in seconds and bytes."""
    return {
        "step_seconds": found.step_seconds,
        "tokens_per_second": found.tokens_per_second,
        "tokens_per_second_per_device": found.tokens_per_second_per_device,
        "model_tflops_per_device": found.model_flops_per_second_per_device / 1e12,
        "mfu": found.mfu,
        "hfu": found.hfu,
        "bubble_fraction": found.bubble_fraction,
        "fits": found.fits,
        "parameters": found.operations.parameter_count,
        "devices": found.devices,
        "idle_devices": found.cluster.devices - found.devices,
        "device_memory_bytes": found.cluster.largest_memory_bytes,
        "parts": {name.replace("_", "-"): value for name, value in asdict(found.parts).items()},
        "stages": [_stage_document(found, place) for place in range(len(found.memory))],
    }


def estimate_lines(found: Estimate) -> Iterator[RenderableType]:
    """Rates, the parts of the step, and the memory of each stage."""
    count = found.operations.parameter_count
    yield (
        f"{found.operations.name}: {count / 1e9:.4g} B parameters on {_devices(found)} devices "
        f"({found.cluster.name})"
    )
    yield (
        f"step {format_seconds(found.step_seconds)}, "
        f"{found.tokens_per_second:,.0f} tokens/s, "
        f"{found.tokens_per_second_per_device:,.1f} tokens/s per device, "
        f"{found.model_flops_per_second_per_device / 1e12:.1f} TFLOP/s per device, "
        f"MFU {found.mfu:.1%}, HFU {found.hfu:.1%}, bubble {found.bubble_fraction:.1%}"
    )
    yield ""
    yield _parts_table(found)
    yield ""
    yield _stages_table(found)


def _devices(found: Estimate) -> str:
    """How many, of how many where some are idle."""
    there = found.cluster.devices
    return str(there) if found.devices == there else f"{found.devices} of {there}"


def shortage(found: Estimate) -> str:
    """Which stage lacks memory, and how much."""
    place = max(range(len(found.memory)), key=lambda place: found.memory[place].total)
    needed, there = found.memory[place].total, found.cluster.largest_memory_bytes
    return (
        f"stage {place} needs {format_bytes(needed)} and a device has {format_bytes(there)}, of "
        f"which driver and libraries take {format_bytes(found.driver_bytes)}; more recomputation, "
        "smaller microbatches, more splitting or --zero would help"
    )


def _stage_document(found: Estimate, place: int) -> dict[str, Any]:
    held = found.stages[place :: len(found.memory)]
    memory = found.memory[place]
    return {
        "blocks": sum(stage.layers.blocks for stage in held),
        "layers": [layer.name for stage in held for layer in stage.layers.layers],
        "forward_seconds": sum(stage.seconds.forward.total for stage in held),
        "backward_seconds": sum(stage.seconds.backward.total for stage in held),
        "memory": {**memory.by_kind(), "total": memory.total},
    }


def _parts_table(found: Estimate) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("part of the step", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for name, seconds in asdict(found.parts).items():
        if seconds:
            share = f"{seconds / found.step_seconds:.1%}"
            table.add_row(name.replace("_", "-"), format_seconds(seconds), share)
    return table


def _stages_table(found: Estimate) -> Table:
    """Kinds of memory that no stage has are left out."""
    documents = [_stage_document(found, place) for place in range(len(found.memory))]
    kinds = [kind for kind in _KINDS if any(one["memory"][kind] for one in documents)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("stage", no_wrap=True)
    for heading in ("blocks", "forward", "backward", *kinds):
        table.add_column(heading, justify="right", no_wrap=True)
    for first, last, one in _runs(documents):
        table.add_row(
            str(first) if first == last else f"{first}-{last}",
            str(one["blocks"]),
            format_seconds(one["forward_seconds"]),
            format_seconds(one["backward_seconds"]),
            *(format_bytes(one["memory"][kind]) for kind in kinds),
        )
    return table


def _runs(documents: list[dict[str, Any]]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Stages side by side that differ in the names of their layers alone, as one."""

    def figures(one: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in one.items() if key != "layers"}

    first = 0
    for place, one in enumerate(documents):
        last = place + 1 == len(documents)
        if last or figures(documents[place + 1]) != figures(one):
            yield first, place, one
            first = place + 1
