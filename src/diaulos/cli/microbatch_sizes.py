"""The graphs that `diaulos plan` is given: layers priced for one microbatch size or several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diaulos.cli.problem import ProblemFlags
from diaulos.errors import InputError
from diaulos.models.files import GraphFile

_KEY = "microbatch_size"


@dataclass(frozen=True, kw_only=True)
class SizedGraph:
    """A graph with what is asked of it."""

    path: Path
    file: GraphFile
    flags: ProblemFlags
    microbatch_size: int | None
    """In samples; None where there is one graph, whatever its size."""


def sized_graphs(flags: ProblemFlags, graph: Path, also: Sequence[Path]) -> list[SizedGraph]:
    """The graphs whose microbatch sizes divide the batch, smallest first.

    A graph states its size in its provenance. An `InputError` where one does not, where two have
    one size, or where none divides the batch.
    """
    if not also:
        file = flags.unsized.read(graph)
        return [SizedGraph(path=graph, file=file, flags=flags, microbatch_size=None)]
    batch = flags.unsized.batch_size
    if batch is None or flags.unsized.microbatches is not None:
        raise InputError(
            "several graphs are given with --microbatches, or without --batch-size",
            "how many microbatches there are follows from the batch and the size of each",
            "give --batch-size in samples",
        )
    if flags.unsized.schedule == "auto":
        raise InputError(
            "several graphs are given with --schedule auto",
            "schedules are compared for one microbatch size",
            "give one of them",
        )
    sized: dict[int, SizedGraph] = {}
    for path in (graph, *also):
        file = replace(flags.unsized, batch_size=None).read(path)
        size = _size(path, file)
        if size in sized:
            raise InputError(
                f"{sized[size].path} and {path} are both for microbatches of {size}",
                "each graph has a size of its own",
            )
        unsized = replace(flags.unsized, microbatches=batch // size)
        asked = replace(flags, unsized=unsized)
        sized[size] = SizedGraph(path=path, file=file, flags=asked, microbatch_size=size)
    found = [sized[size] for size in sorted(sized) if batch % size == 0]
    if not found:
        raise InputError(
            f"no microbatch size of {sorted(sized)} divides the batch of {batch} samples",
            "a batch is made up of whole microbatches",
        )
    return found


def _size(path: Path, file: GraphFile) -> int:
    stated = file.graph.provenance.get(_KEY, "")
    if not stated.isdecimal() or int(stated) < 1:
        raise InputError(
            f"{path} does not say for what microbatch size it was priced",
            f"its provenance needs {_KEY}, in samples, where several graphs are given",
        )
    return int(stated)
