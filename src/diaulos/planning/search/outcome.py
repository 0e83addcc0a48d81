"""What a search comes to."""

from dataclasses import dataclass
from fractions import Fraction

from diaulos.planning.search.covering.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A plan, stages from the input end, and what is known of all others."""

    plan: tuple[Placement, ...] | None
    """None where none was found."""
    bound: Fraction
    """No plan of the space is faster: time per sample without a flush, of a batch with one."""
    is_proven: bool
    """Whether the plan is the fastest, or none exists."""
