"""What it would take where no plan fits, in sentences and as a document."""

from collections.abc import Mapping
from typing import Any

from diaulos.planning.infeasibility import Infeasibility, Shortage
from diaulos.planning.problem import PlanningProblem
from diaulos.reporting.tables import describe_layers
from diaulos.units import format_bytes


def infeasibility_sentences(problem: PlanningProblem, found: Infeasibility) -> list[str]:
    """The stage that does not fit in the best attempt, and what would do."""
    cluster = problem.cluster
    size = format_bytes(cluster.largest_memory_bytes)
    sentences = []
    if found.shortage is not None:
        sentences.append(_shortage_sentence(problem, found.shortage))
    if found.least_memory_bytes is None:
        sentences.append(f"with {cluster.devices} devices no memory would do")
    else:
        least = found.least_memory_bytes
        sentences.append(
            f"with {cluster.devices} devices, {format_bytes(least)} on each would do "
            f"({least:.0f} bytes), and nothing less"
        )
    if found.fewest_devices is None:
        sentences.append(f"with {size} on each device, no number of devices would do")
    else:
        count = found.fewest_devices
        sentences.append(f"with {size} on each device, {count} devices would do, and no fewer")
    return sentences


def infeasibility_document(found: Infeasibility) -> dict[str, Any]:
    """The same in bytes."""
    document: dict[str, Any] = {
        "least_memory_bytes": found.least_memory_bytes,
        "fewest_devices": found.fewest_devices,
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


def describe_kinds(memory_by_kind: Mapping[str, float], in_flight: int) -> str:
    """What fills a device, most first: `3.1 GiB activations (4 in flight), 1 GiB parameters`."""
    held = sorted(memory_by_kind.items(), key=lambda item: -item[1])
    texts = []
    for kind, size in held:
        if size > 0:
            note = f" ({in_flight} in flight)" if kind == "activations" else ""
            texts.append(f"{format_bytes(size)} {kind}{note}")
    return ", ".join(texts)


def _shortage_sentence(problem: PlanningProblem, shortage: Shortage) -> str:
    stage = shortage.plan.stages[shortage.stage]
    largest = problem.graph.layer(shortage.layer).label
    return (
        f"in the best attempt, of {len(shortage.plan.stages)} stages, stage {shortage.stage} "
        f"(layers {describe_layers(problem.graph, stage)}) lacks "
        f"{format_bytes(shortage.missing_bytes)} ({shortage.missing_bytes:.0f} bytes): it holds "
        f"{describe_kinds(shortage.memory_by_kind, shortage.in_flight)}; its largest layer is "
        f"{largest} with {format_bytes(shortage.layer_bytes)}"
    )
