"""`diaulos validate`: published measurements beside what the estimates say of them."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from diaulos.cli.output import make_console, print_json
from diaulos.estimating.measured.validate import validate_folder
from diaulos.reporting.validation import (
    passed_over_sentences,
    validation_document,
    validation_table,
)

_USUAL = Path("../shared/reference/measured")


def validate(
    folder: Path = _USUAL,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Estimate every run of the measured files in a folder, and say how far off the times are.

    Every third row of each file was held out when the constants of devices were set; the mean
    error of these stands apart.

    Parameters
    ----------
    folder
        With files of known names; others are passed over.
    as_json
        Print one JSON object with every row, instead of the table.
    """
    files = validate_folder(folder)
    if as_json:
        print_json(validation_document(files))
        return
    console = make_console()
    console.width = max(console.width, 220)  # the rows have long names
    console.print(validation_table(files))
    for sentence in passed_over_sentences(files):
        console.print(sentence)
