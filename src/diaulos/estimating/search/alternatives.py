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
    less: tuple[str, ...]
    """What it has clearly less of, the largest gain first."""


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
            less = _has_less(best, one)
            if less:
                slower = one.step_seconds / best.step_seconds - 1
                others[_kind(one)] = Alternative(estimate=one, slower=slower, less=less)
    return best, tuple(others.values())


def _kind(one: Estimate) -> object:
    chosen = one.configuration
    spread = chosen.sharding is Sharding.PARAMETERS
    return chosen.degrees, chosen.recompute, spread


def _has_less(best: Estimate, other: Estimate) -> tuple[str, ...]:
    gains = []
    for name, amount in _BURDENS.items():
        least, mine = amount(other), amount(best)
        if mine > 0 and least <= _CLEARLY * mine:
            gains.append((least / mine, name))
    return tuple(name for _, name in sorted(gains))


def _exchanged_seconds(one: Estimate) -> float:
    parts = one.parts
    return parts.tensor_parallel + parts.context_parallel + parts.expert_parallel


_BURDENS: Mapping[str, Callable[[Estimate], float]] = MappingProxyType(
    {
        "memory": lambda one: one.memory_bytes,
        "recomputation": lambda one: one.recomputed_flops / one.operations.model_flops,
        "waiting in the pipeline": lambda one: one.parts.bubble + one.parts.pipeline,
        "exchanges inside layers": _exchanged_seconds,
        "waiting for replicas": lambda one: one.parts.data_parallel,
        "depth": lambda one: float(one.configuration.stages),
    }
)
"""What a configuration costs beside its time, by name."""
