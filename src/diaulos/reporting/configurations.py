"""The best configurations of a model on a cluster, as tables and as a document."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import Estimate
from diaulos.estimating.search.alternatives import Alternative
from diaulos.estimating.search.doubts import Doubt
from diaulos.estimating.search.planned import Planned
from diaulos.reporting.estimate import estimate_document, estimate_lines
from diaulos.units import format_bytes, format_seconds


def configuration_document(chosen: Configuration) -> dict[str, Any]:
    """A configuration by the names of the flags of `diaulos estimate`."""
    return {
        "tensor_parallel": chosen.degrees.tensor,
        "pipeline_parallel": chosen.degrees.pipeline,
        "data_parallel": chosen.degrees.data,
        "context_parallel": chosen.degrees.context,
        "expert_parallel": chosen.degrees.expert,
        "virtual_stages": chosen.virtual_stages,
        "microbatch_size": chosen.microbatch_size,
        "batch_size": chosen.batch_size,
        "sequence_length": chosen.sequence_length,
        "recompute": chosen.recompute.value,
        "sequence_parallel": chosen.sequence_parallel,
        "zero": int(chosen.sharding),
        "schedule": chosen.schedule,
        "attention": chosen.attention.value,
        "precision": chosen.precision.name,
        "layers_per_stage": chosen.blocks_per_stage and list(chosen.blocks_per_stage),
    }


def configuration_flags(chosen: Configuration) -> str:
    """What `diaulos estimate` is given beside model and cluster; usual values are left out."""
    usual: dict[str, Any] = {"virtual_stages": 1, "context_parallel": 1, "expert_parallel": 1}
    usual |= {"zero": 0, "recompute": "none", "attention": "flash", "precision": "bf16"}
    words = []
    for name, value in configuration_document(chosen).items():
        if value is None or value is False or usual.get(name) == value:
            continue
        flag = f"--{name.replace('_', '-')}"
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        words.append(flag if value is True else f"{flag} {text}")
    return " ".join(words)


def planned_document(planned: Planned) -> dict[str, Any]:
    """The answer as JSON, in seconds and bytes."""
    document: dict[str, Any] = {
        "feasible": planned.best is not None,
        "configurations": planned.configurations,
        "simulated": planned.simulated,
        "search_seconds": planned.search_seconds,
    }
    if planned.best is None:
        return document
    return {
        **document,
        "best": _estimate_document(planned.best),
        "alternatives": [
            {
                **_estimate_document(other.estimate),
                "slower": other.slower,
                "better_at": [f"less {name}" for name in other.less],
            }
            for other in planned.others
        ],
        "doubts": [_doubt_document(doubt) for doubt in planned.doubts],
    }


def planned_lines(planned: Planned, estimate_command: str) -> Iterator[RenderableType]:
    """The best in detail, others beside it, and what it would cost to be wrong.

    `estimate_command` is that of `diaulos estimate` up to the configuration.
    """
    assert planned.best is not None
    yield from estimate_lines(planned.best)
    yield ""
    yield _choice_table(planned.best, planned.others)
    yield ""
    if planned.doubts:
        yield _doubts_table(planned.doubts)
        yield ""
    yield (
        f"fastest of {planned.configurations:,} configurations, of which {planned.simulated:,} "
        f"were simulated, in {format_seconds(planned.search_seconds)}"
    )
    yield "the same again:"
    yield f"  {estimate_command} {configuration_flags(planned.best.configuration)}"


def no_configuration(planned: Planned) -> str:
    """Why there is none: what the leanest needs, and where that is not to be had."""
    if planned.leanest is None:
        return (
            f"no configuration of {planned.configurations:,}: no degrees multiply to the devices "
            "and divide the batch; give another batch size or number of devices"
        )
    draft, needed = planned.leanest
    there = draft.cluster.largest_memory_bytes
    return (
        f"no configuration of {planned.configurations:,} fits: the leanest needs "
        f"{format_bytes(needed)} of each device, and they have {format_bytes(there)}; it is "
        f"{configuration_flags(draft.configuration)}\n"
        "  more devices, devices of more memory, shorter sequences or a smaller batch would help"
    )


def _estimate_document(found: Estimate) -> dict[str, Any]:
    return {
        "configuration": configuration_document(found.configuration),
        **estimate_document(found),
    }


def _doubt_document(doubt: Doubt) -> dict[str, Any]:
    return {
        "assumption": doubt.assumption,
        "step_seconds": doubt.step_seconds,
        "fits": doubt.fits,
        "best": doubt.best,
        "best_seconds": doubt.best_seconds,
        "regret": doubt.regret,
    }


def _choice_table(best: Estimate, others: Sequence[Alternative]) -> Table:
    """The configurations in rows; columns that say nothing are left out."""
    rows: list[tuple[str, Estimate, tuple[str, ...]]] = [("", best, ())]
    rows += [(f"+{other.slower:.1%}", other.estimate, other.less) for other in others]
    cells = [_cells(one) for _, one, _ in rows]
    usual = {"c": "1", "e": "1", "chunks": "1"}
    shown = [name for name in cells[0] if any(row[name] != usual.get(name) for row in cells)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", justify="right", no_wrap=True)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("step", "slower", "MFU", "memory", "bubble"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("has less")
    for number, ((slower, one, less), row) in enumerate(zip(rows, cells, strict=True), 1):
        table.add_row(
            str(number),
            *(row[name] for name in shown),
            format_seconds(one.step_seconds),
            slower,
            f"{one.mfu:.1%}",
            format_bytes(one.memory_bytes),
            f"{one.bubble_fraction:.1%}",
            ", ".join(less),
        )
    return table


def _cells(one: Estimate) -> dict[str, str]:
    chosen = one.configuration
    return {
        "t": str(chosen.degrees.tensor),
        "p": str(chosen.degrees.pipeline),
        "d": str(chosen.degrees.data),
        "c": str(chosen.degrees.context),
        "e": str(chosen.degrees.expert),
        "chunks": str(chosen.virtual_stages),
        "microbatch": str(chosen.microbatch_size),
        "recompute": chosen.recompute.value,
        "ZeRO": str(int(chosen.sharding)),
        "schedule": chosen.schedule if chosen.degrees.pipeline > 1 else "-",
    }


def _doubts_table(found: Sequence[Doubt]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("what it would cost to be wrong: if", no_wrap=True)
    for heading in ("1 takes", "best is", "taking", "1 loses"):
        table.add_column(heading, justify="right", no_wrap=True)
    for doubt in found:
        table.add_row(
            doubt.assumption,
            format_seconds(doubt.step_seconds) if doubt.fits else "lacks memory",
            str(doubt.best + 1),
            format_seconds(doubt.best_seconds),
            f"{doubt.regret:.1%}" if doubt.fits else "all",
        )
    return table
