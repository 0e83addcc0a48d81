"""The best configuration with others that differ from it, and what each of these is better at."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from diaulos.estimating.estimate import Estimate
from diaulos.pricing.analytic.account import Sharding

_CLEARLY = 0.9
"""What is at most this part of the best's counts as better."""
_MUCH_SLOWER = 2.0
"""Times the best: what takes longer is no alternative."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A configuration that another one is compared with."""

    estimate: Estimate
    slower: float
    """By which part of the best's step it takes longer."""
    better_at: tuple[str, ...]
    """What it has clearly less of, as a phrase each, the largest gain first."""


def best_and_others(
    found: Iterable[Estimate], most: int
) -> tuple[Estimate | None, tuple[Alternative, ...]]:
    """The first of estimates that come fastest first, and the next that are of use beside it.

    Those differ in how they spread the model, not only in how they stack it: in degrees, in what is
    recomputed, or in whether parameters are spread; and they are better at something.
    """
    best: Estimate | None = None
    others: dict[object, Alternative] = {}
    for one in found:
        if best is None:
            best = one
        elif len(others) == most or one.step_seconds > _MUCH_SLOWER * best.step_seconds:
            break
        elif _kind(one) != _kind(best) and _kind(one) not in others:
            better_at = _better_at(best, one)
            if better_at:
                slower = one.step_seconds / best.step_seconds - 1
                others[_kind(one)] = Alternative(estimate=one, slower=slower, better_at=better_at)
    return best, tuple(others.values())


def _kind(one: Estimate) -> object:
    chosen = one.configuration
    spread = chosen.sharding is Sharding.PARAMETERS
    return chosen.degrees, chosen.recompute, spread


def _better_at(best: Estimate, other: Estimate) -> tuple[str, ...]:
    gains = []
    for phrase, amount in _BURDENS.items():
        least, mine = amount(other), amount(best)
        if mine > 0 and least <= _CLEARLY * mine:
            gains.append((least / mine, phrase))
    return tuple(phrase for _, phrase in sorted(gains))


def _exchanged_seconds(one: Estimate) -> float:
    parts = one.parts
    return parts.tensor_parallel + parts.context_parallel + parts.expert_parallel


_BURDENS: Mapping[str, Callable[[Estimate], float]] = MappingProxyType(
    {
        "less memory": lambda one: one.memory_bytes,
        "less recomputed": lambda one: one.recomputed_flops / one.operations.model_flops,
        "less waiting in the pipeline": lambda one: one.parts.bubble + one.parts.pipeline,
        "less exchanged inside layers": _exchanged_seconds,
        "less waiting for sums over replicas": lambda one: one.parts.data_parallel,
        "fewer stages": lambda one: float(one.configuration.stages),
    }
)
"""What a configuration costs beside its time, by the phrase for having less of it."""
