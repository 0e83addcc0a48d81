"""`diaulos trace`: what planned and measured timelines tell."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from diaulos.cli.output import make_console, print_json
from diaulos.errors import CheckError
from diaulos.reporting.difference import (
    difference_document,
    order_sentences,
    step_sentence,
    time_table,
)
from diaulos.reporting.trace_files import read_timeline_or_trace
from diaulos.schedules.analysis.difference import difference
from diaulos.schedules.timeline import Timeline


def diff(
    planned: Path,
    measured: Path,
    *,
    strict: Annotated[bool, Parameter(negative=())] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Tell where a run differs from its plan: in time by stage and action, and in order by rank.

    Parameters
    ----------
    planned
        The planned timeline or a trace of it, JSON, as `diaulos simulate --trace` writes it.
    measured
        The timeline or the trace of the run, JSON, or its folder with the records of its ranks.
    strict
        End with exit status 1 where anything was done in another order, with other weights or not
        at all.
    as_json
        Print one JSON object instead of the table.
    """
    plan = read_timeline_or_trace(planned)
    found = difference(plan, _measured(measured, plan.microbatches))
    if as_json:
        print_json(difference_document(found))
    else:
        console = make_console()
        console.print(step_sentence(found))
        console.print(time_table(found))
        for sentence in order_sentences(found):
            console.print(sentence, soft_wrap=True, markup=False)
    if strict and not found.is_as_planned:
        raise CheckError(f"{measured} does not do what {planned} plans")


def _measured(path: Path, microbatches: int) -> Timeline:
    if not path.is_dir():
        return read_timeline_or_trace(path)
    from diaulos.training.records import read_measured_timeline  # noqa: PLC0415 - needs torch

    return read_measured_timeline(path, path.name, microbatches)
