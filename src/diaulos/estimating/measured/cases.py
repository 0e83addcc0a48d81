"""A measured run as a configuration to estimate, and how far the estimate is off."""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from statistics import median

from diaulos.clusters.cluster import Cluster
from diaulos.documents import read_text
from diaulos.errors import InputError
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import Estimate, estimate
from diaulos.estimating.pipeline import Simulators
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.decoders.sizes import DecoderSizes
from diaulos.models.operations import Model

_HELD_OUT_EVERY = 3


class Quantity(Enum):
    """What was measured."""

    TIME = "time"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One measured number, and where the same stands in an estimate."""

    group: str
    """Rows of a file that belong together."""
    quantity: Quantity
    measured: float
    predicted: Callable[[Estimate], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row of a file."""

    label: str
    model: Model
    cluster: Cluster
    configuration: Configuration
    checks: tuple[Check, ...]
    held_out: bool
    """Whether no constant was set by it: every third row of each file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A row that cannot be recomputed."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A measured number beside the predicted one."""

    label: str
    group: str
    quantity: Quantity
    measured: float
    predicted: float
    held_out: bool

    @property
    def error(self) -> float:
        """By what share the prediction is more than what was measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How far a group of comparisons is off."""

    rows: int
    median_error: float
    """Of the absolute errors."""
    mean_error: float
    """Of the absolute errors."""
    bias: float
    """The mean error with its sign."""
    worst: Comparison


def decoder_model(sizes: DecoderSizes) -> Model:
    """A decoder as a model to estimate."""
    return partial(decoder_operations, sizes)


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with a header."""
    return list(csv.DictReader(read_text(file).splitlines()))


def is_held_out(index: int) -> bool:
    """Whether the row of this number, from 0, is kept from the setting of constants."""
    return index % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1


def compare_case(case: Case, simulators: Simulators) -> list[Comparison]:
    """What the estimate says of a case, number by number."""
    try:
        found = estimate(case.model, case.cluster, case.configuration, simulators)
    except InputError as error:
        raise error.at(case.label) from None
    return [
        Comparison(
            label=case.label,
            group=check.group,
            quantity=check.quantity,
            measured=check.measured,
            predicted=check.predicted(found),
            held_out=case.held_out,
        )
        for check in case.checks
    ]


def summarise(comparisons: Sequence[Comparison]) -> Summary:
    """Of at least one comparison."""
    errors = [comparison.error for comparison in comparisons]
    sizes = [abs(error) for error in errors]
    return Summary(
        rows=len(errors),
        median_error=median(sizes),
        mean_error=math.fsum(sizes) / len(sizes),
        bias=math.fsum(errors) / len(errors),
        worst=max(comparisons, key=lambda comparison: abs(comparison.error)),
    )
