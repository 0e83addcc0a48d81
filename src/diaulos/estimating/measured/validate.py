"""All measured files of a folder, recomputed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from diaulos.errors import InputError
from diaulos.estimating.measured.aceso import read_aceso
from diaulos.estimating.measured.cases import Case, Comparison, PassedOver, compare_case
from diaulos.estimating.measured.megatron import (
    read_sc21,
    read_sc21_sharded,
    read_seqpar,
    read_vtrain,
)
from diaulos.estimating.measured.torchtitan import read_torchtitan
from diaulos.estimating.measured.vocabulary import read_vocabulary
from diaulos.estimating.measured.vocabulary_runs import read_vocabulary_runs
from diaulos.estimating.pipeline import Simulators

READERS: Mapping[str, Callable[[Path], Iterator[Case | PassedOver]]] = MappingProxyType(
    {
        "seqpar_mlsys23.csv": read_seqpar,
        "megatron_sc21_table1.csv": read_sc21,
        "megatron_sc21_table2_ptd_vs_zero3.csv": read_sc21_sharded,
        "vtrain_a100_multinode.csv": read_vtrain,
        "torchtitan_llama3_h100.csv": read_torchtitan,
        "vocab_stage_times_pp8.csv": read_vocabulary,
        "vocab_imbalance_pp8.csv": read_vocabulary_runs,
        "aceso_v100_actual_vs_predicted.csv": read_aceso,
    }
)
"""By the names of the files."""


_ALTERNATIVES = ("vtrain_a100_multinode.csv",)
"""Files whose groups are ways to train the same batch of one model on one cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileComparison:
    """A file and what the estimates say of its rows."""

    name: str
    comparisons: tuple[Comparison, ...]
    passed_over: tuple[PassedOver, ...] = ()

    def excess(self, group: str) -> float | None:
        """By how much the row of a group that the estimates rank first is above the measured best.

        None where rows are not alternatives.
        """
        rows = [row for row in self.comparisons if row.group == group]
        if self.name not in _ALTERNATIVES or not rows:
            return None
        first = min(rows, key=lambda row: row.predicted)
        return first.measured / min(row.measured for row in rows) - 1


def validate_folder(folder: Path) -> tuple[FileComparison, ...]:
    """The comparisons of every file of the folder that is known by its name."""
    known = [(name, folder / name) for name in READERS if (folder / name).is_file()]
    if not known:
        raise InputError(
            f"{folder} has no measured file that is known",
            f"known are {', '.join(READERS)}",
        )
    simulators = Simulators()
    return tuple(_compare(name, READERS[name](file), simulators) for name, file in known)


def _compare(
    name: str, rows: Iterator[Case | PassedOver], simulators: Simulators
) -> FileComparison:
    known = list(rows)
    return FileComparison(
        name=name,
        comparisons=tuple(
            comparison
            for row in known
            if isinstance(row, Case)
            for comparison in compare_case(row, simulators)
        ),
        passed_over=tuple(row for row in known if isinstance(row, PassedOver)),
    )
