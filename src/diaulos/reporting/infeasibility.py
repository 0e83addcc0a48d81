"""What it would take where no plan fits, in sentences and as a document."""

from collections.abc import Mapping
from typing import Any

from diaulos.planning.explanation.infeasibility import Infeasibility, Shortage
from diaulos.planning.problem import PlanningProblem
from diaulos.reporting.tables import describe_layers
from diaulos.units import format_bytes


def infeasibility_sentences(problem: PlanningProblem, found: Infeasibility) -> list[str]:
    """The stage that does not fit in the best attempt, and what would do."""
    cluster = problem.cluster
    size = format_bytes(cluster.largest_memory_bytes)
    devices = _count(cluster.devices, "device")
    would = "would" if found.proven else "was found to"
    sentences = []
    if found.shortage is not None:
        sentences.append(_shortage_sentence(problem, found.shortage))
    if found.least_memory_bytes is None:
        sentences.append(f"with {devices} no memory {would} do")
    else:
        least = found.least_memory_bytes
        sentences.append(
            f"with {devices}, {format_bytes(least)} on each would do "
            f"({least:.0f} bytes)" + (", and nothing less" if found.proven else "")
        )
    if found.fewest_devices is None:
        sentences.append(f"with {size} on each device, no number of devices {would} do")
    else:
        fewest = _count(found.fewest_devices, "device")
        fewer = ", and no fewer" if found.proven else ""
        sentences.append(f"with {size} on each device, {fewest} would do{fewer}")
    return sentences


def infeasibility_document(found: Infeasibility) -> dict[str, Any]:
    """The same in bytes."""
    document: dict[str, Any] = {
        "least_memory_bytes": found.least_memory_bytes,
        "fewest_devices": found.fewest_devices,
        "least_is_proven": found.proven,
    }
    if found.shortage is None:
        return document
    shortage = found.shortage
    attempt = {
        "stage": shortage.stage,
        "stages": len(shortage.plan.stages),
        "layers": list(shortage.plan.stages[shortage.stage].layers),
        "largest_layer": shortage.layer,
        "largest_layer_bytes": shortage.layer_bytes,
        "in_flight": shortage.in_flight,
        "memory_bytes": shortage.memory_bytes,
        "missing_bytes": shortage.missing_bytes,
        "memory_by_kind": dict(shortage.memory_by_kind),
    }
    return {**document, "best_attempt": attempt}


def describe_kinds(
    memory_by_kind: Mapping[str, float], in_flight: int, *, most: int | None = None
) -> str:
    """What fills a device, largest first: `3.1 GiB activations (4 in flight), 1 GiB parameters`.

    Of more than `most` kinds the smallest are summed up: `and 512 MiB more`.
    """
    held = sorted(((kind, size) for kind, size in memory_by_kind.items() if size > 0), key=_size)
    named, others = held[:most], held[len(held[:most]) :]
    texts = [
        f"{format_bytes(size)} {kind}{f' ({in_flight} in flight)' * (kind == 'activations')}"
        for kind, size in named
    ]
    rest = sum(size for _, size in others)
    return ", ".join(texts) + (f" and {format_bytes(rest)} more" if others else "")


def _size(item: tuple[str, float]) -> float:
    return -item[1]


def _shortage_sentence(problem: PlanningProblem, shortage: Shortage) -> str:
    stage = shortage.plan.stages[shortage.stage]
    largest = problem.graph.layer(shortage.layer).label
    stages = _count(len(shortage.plan.stages), "stage")
    return (
        f"in the best attempt, of {stages}, stage {shortage.stage} "
        f"(layers {describe_layers(problem.graph, stage)}) lacks "
        f"{format_bytes(shortage.missing_bytes)} ({shortage.missing_bytes:.0f} bytes): it holds "
        f"{describe_kinds(shortage.memory_by_kind, shortage.in_flight)}; its largest layer is "
        f"{largest} with {format_bytes(shortage.layer_bytes)}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
