"""Runs of the plans that Aceso found (EuroSys 2024), on V100s of 32 GB."""

from collections.abc import Iterator
from pathlib import Path

from diaulos.estimating.measured.cases import PassedOver, read_rows


def read_aceso(file: Path) -> Iterator[PassedOver]:
    """No row can be recomputed: which plan was run is not stated, and no two stages are alike."""
    for row in read_rows(file):
        yield PassedOver(
            label=f"{row['model']} {row['size']}", reason="the plan that was run is not stated"
        )
