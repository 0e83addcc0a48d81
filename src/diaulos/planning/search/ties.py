"""Which of the fastest plans is taken: a rule, so that a problem has one answer.

Fewest devices, then fewest stages, then least memory summed over all devices, then the first in a
canonical order. The rule is additive over stages, so the winner is found on the graph of those
steps (a stage before a label) that lie on some plan with the fewest devices and stages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.evaluate import RELATIVE_ROUNDING
from diaulos.planning.search.cover import Cover, Limits, by_size
from diaulos.planning.search.placement import Judge, Placement
from diaulos.planning.search.scope import Scope
from diaulos.planning.search.space import Space
from diaulos.planning.search.threshold import Threshold

_TOTALS = 1 << 24
MOST_CHOICES = 2_000
"""With more stages whose options must be chosen one by one, memory does not break ties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Stages on plans that are still in the running; those of one size of downset."""

    label: NDArray[np.int64]
    """Of the stages from this one on."""
    rest: NDArray[np.int64]
    """Label of the stages behind this one."""
    pair: NDArray[np.int64]
    degree: NDArray[np.int64]
    in_flight: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.label)

    def placements(self) -> list[Placement]:
        """The stages as placements."""
        return [
            Placement(pair=pair, degree=degree, in_flight=in_flight, end=0)
            for pair, degree, in_flight in zip(
                self.pair.tolist(), self.degree.tolist(), self.in_flight.tolist(), strict=True
            )
        ]

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> "_Steps":
        """Some of the steps."""
        return _Steps(**{name: getattr(self, name)[places] for name in self.__slots__})


def break_ties(
    judge: Judge, scope: Scope, time: Fraction, devices: int
) -> Sequence[Placement]:
    """The plan that the rule picks among those of least time, from the input end.

    `devices` are those of some plan as fast. Where it matters on which devices stages stand, those
    that are idle between stages count as taken, and the rule ends with the stages.
    """
    space = judge.space
    threshold = Threshold(time=time * (1 + Fraction(RELATIVE_ROUNDING)))
    limits = Limits(devices=devices, keep_ties=space.problem.cluster.is_flat)
    while True:
        cover = Cover.of(space, scope, threshold, judge.lessons, limits)
        if space.problem.cluster.is_flat:
            plan = _by_memory(judge, cover, threshold)
        else:
            plan = cover.placements(int(cover.fewest()[0]))
        if plan is not None and all([judge.keeps_to(stage, threshold) for stage in plan]):
            return plan


def _by_memory(judge: Judge, cover: Cover, threshold: Threshold) -> Sequence[Placement] | None:
    """The plan of least memory; None where stages turned out not to keep to the threshold."""
    levels = list(_levels(cover))
    held = [judge.memory_of_fastest(steps.pair, steps.degree, steps.in_flight) for steps in levels]
    hard = {
        placement: np.nan
        for steps, bytes_ in zip(levels, held, strict=True)
        for placement in steps.take(np.isnan(bytes_)).placements()
    }
    if len(hard) > MOST_CHOICES:
        held = [np.zeros(len(steps)) for steps in levels]
    elif not all([judge.keeps_to(placement, threshold) for placement in hard]):
        return None
    else:
        hard = {placement: judge.memory_bytes(placement) for placement in hard}
        held = [_filled(steps, bytes_, hard) for steps, bytes_ in zip(levels, held, strict=True)]
    return _first_in_order(cover, levels, held)


def _filled(
    steps: _Steps, held: NDArray[np.float64], hard: dict[Placement, float]
) -> NDArray[np.float64]:
    unknown = np.flatnonzero(np.isnan(held))
    held[unknown] = [hard[placement] for placement in steps.take(unknown).placements()]
    return held


def _levels(cover: Cover) -> Iterator[_Steps]:
    """All steps of plans with the fewest devices and stages, from the input end."""
    space, labels, rows = cover.space, cover.labels, cover.labels.rows
    reached = np.zeros(len(labels), np.bool_)
    reached[cover.fewest()] = True
    keys = rows.downset * _TOTALS + rows.total  # ascend, as the labels were added so
    for some in by_size(space, cover.candidates):
        place, label = labels.following(some.outer)
        wanted = reached[label]
        place, label = place[wanted], label[wanted]
        total, degree = rows.total[label], some.degree[place]
        key = some.inner[place].astype(np.int64) * _TOTALS + total - space.replicas_of[degree]
        rest = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        fits = (some.first[place] <= total) & (total <= some.last[place]) & (keys[rest] == key)
        fits &= rows.packed[rest] + space.packed_of[degree] == rows.packed[label]
        reached[rest[fits]] = True
        if fits.any():
            yield _Steps(
                label=label[fits],
                rest=rest[fits],
                pair=some.pair[place[fits]],
                degree=degree[fits],
                in_flight=space.numbers_in_flight(total[fits], degree[fits]),
            )


def _first_in_order(
    cover: Cover, levels: Sequence[_Steps], held: Sequence[NDArray[np.float64]]
) -> Sequence[Placement]:
    """Stage by stage from the input end, the first by layers and degrees of least memory."""
    space = cover.space
    devices = np.array([degree.devices for degree in space.degrees])
    costs = [devices[steps.degree] * bytes_ for steps, bytes_ in zip(levels, held, strict=True)]
    least = np.full(len(cover.labels), np.inf)
    least[: cover.labels.first] = 0.0
    for steps, cost in zip(reversed(levels), reversed(costs), strict=True):
        np.minimum.at(least, steps.label, least[steps.rest] + cost)
    complete = cover.fewest()
    most = float(least[complete].min()) * (1 + RELATIVE_ROUNDING)
    # Plans that start alike may differ in their sums; each has its memory and stages so far.
    alive: dict[int, tuple[float, tuple[Placement, ...]]] = {int(i): (0.0, ()) for i in complete}
    for steps, cost in zip(levels, costs, strict=True):
        so_far = np.array([alive[label][0] for label in alive])
        place = np.searchsorted(list(alive), steps.label) % len(alive)
        now = np.where(np.array(list(alive))[place] == steps.label, so_far[place] + cost, np.inf)
        good = np.flatnonzero(now + least[steps.rest] <= most)
        if len(good):
            good = good[_first(space, steps.take(good))]
            chosen = steps.take(good)
            onward = {
                rest: (memory, (*alive[label][1], placement))
                for rest, label, memory, placement in zip(
                    chosen.rest.tolist(),
                    chosen.label.tolist(),
                    now[good].tolist(),
                    chosen.placements(),
                    strict=True,
                )
            }
            alive = dict(sorted(onward.items()))
    return alive[0][1]


def _first(space: Space, steps: _Steps) -> NDArray[np.int64]:
    """The steps whose layers come first, and of those the ones of the smallest degrees."""
    members, pairs = space.downsets.members, space.pairs
    layers = members[pairs.outer[steps.pair]] & ~members[pairs.inner[steps.pair]]
    left = np.arange(len(steps))
    for layer in range(layers.shape[1]):
        some = layers[left]
        ends = ~some[:, layer:].any(axis=1)
        if ends.any():
            left = left[ends]
            break
        if some[:, layer].any():
            left = left[some[:, layer]]
    degrees = [space.degrees[degree] for degree in steps.degree[left].tolist()]
    keys = [(degree.data_parallel, degree.devices) for degree in degrees]
    return left[[key == min(keys) for key in keys]]
