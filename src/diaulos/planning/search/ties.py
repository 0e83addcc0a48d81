"""Which of the fastest plans is taken: a rule, so that a problem has one answer.

Fewest devices, then fewest stages, then least memory summed over all devices, then the first in a
canonical order. The rule is additive over stages, so the winner is found on the graph of those
moves (a stage before a label) that lie on some plan with the fewest devices and stages.
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.search.covering.cover import Cover
from diaulos.planning.search.covering.growth import Limits
from diaulos.planning.search.covering.moves import Moves, best_moves
from diaulos.planning.search.covering.placement import Judge, Placement
from diaulos.planning.search.covering.scope import Scope
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold

MOST_CHOICES = 2_000
"""With more stages whose options must be chosen one by one, memory does not break ties."""


def break_ties(judge: Judge, scope: Scope, time: Fraction, devices: int) -> Sequence[Placement]:
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
        if plan is not None and judge.all_keep_to(plan, threshold):
            return plan


def _by_memory(judge: Judge, cover: Cover, threshold: Threshold) -> Sequence[Placement] | None:
    """The plan of least memory; None where stages turned out not to keep to the threshold."""
    levels = list(best_moves(cover))
    held = [judge.memory_of_fastest(moves.pair, moves.degree, moves.in_flight) for moves in levels]
    hard = {
        placement: np.nan
        for moves, bytes_ in zip(levels, held, strict=True)
        for placement in moves.take(np.isnan(bytes_)).placements()
    }
    if len(hard) > MOST_CHOICES:
        held = [np.zeros(len(moves)) for moves in levels]
    elif not judge.all_keep_to(hard, threshold):
        return None
    else:
        hard = {placement: judge.memory_bytes(placement) for placement in hard}
        held = [_filled(moves, bytes_, hard) for moves, bytes_ in zip(levels, held, strict=True)]
    return _first_in_order(cover, levels, held)


def _filled(
    moves: Moves, held: NDArray[np.float64], hard: dict[Placement, float]
) -> NDArray[np.float64]:
    unknown = np.flatnonzero(np.isnan(held))
    held[unknown] = [hard[placement] for placement in moves.take(unknown).placements()]
    return held


def _first_in_order(
    cover: Cover, levels: Sequence[Moves], held: Sequence[NDArray[np.float64]]
) -> Sequence[Placement]:
    """Stage by stage from the input end, the first by layers and degrees of least memory."""
    space = cover.space
    devices = np.array([degree.devices for degree in space.degrees])
    costs = [devices[moves.degree] * bytes_ for moves, bytes_ in zip(levels, held, strict=True)]
    least = np.full(len(cover.labels), np.inf)
    least[: cover.labels.first] = 0.0
    for moves, cost in zip(reversed(levels), reversed(costs), strict=True):
        np.minimum.at(least, moves.label, least[moves.rest] + cost)
    complete = cover.fewest()
    most = float(least[complete].min()) * (1 + RELATIVE_ROUNDING)
    # Plans that start alike may differ in their sums; each has its memory and stages so far.
    alive: dict[int, tuple[float, tuple[Placement, ...]]] = {int(i): (0.0, ()) for i in complete}
    for moves, cost in zip(levels, costs, strict=True):
        so_far = np.array([alive[label][0] for label in alive])
        place = np.searchsorted(list(alive), moves.label) % len(alive)
        now = np.where(np.array(list(alive))[place] == moves.label, so_far[place] + cost, np.inf)
        good = np.flatnonzero(now + least[moves.rest] <= most)
        if len(good):
            good = good[_first(space, moves.take(good))]
            chosen = moves.take(good)
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


def _first(space: Space, moves: Moves) -> NDArray[np.int64]:
    """The moves whose layers come first, and of those the ones of the smallest degrees."""
    members, pairs = space.downsets.members, space.pairs
    layers = members[pairs.outer[moves.pair]] & ~members[pairs.inner[moves.pair]]
    left = np.arange(len(moves))
    for layer in range(layers.shape[1]):
        some = layers[left]
        ends = ~some[:, layer:].any(axis=1)
        if ends.any():
            left = left[ends]
            break
        if some[:, layer].any():
            left = left[some[:, layer]]
    degrees = [space.degrees[degree] for degree in moves.degree[left].tolist()]
    keys = [(degree.data_parallel, degree.devices) for degree in degrees]
    return left[[key == min(keys) for key in keys]]
