"""Moves: stages before labels that lie on plans with the fewest devices and stages."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.covering.cover import Cover, by_size
from diaulos.planning.search.covering.placement import Placement

_TOTALS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
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

    def in_settings(self, cover: Cover) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The settings that occur, each with the places of its moves."""
        settings = cover.space.setting_of[self.degree]
        for index in np.unique(settings).tolist():
            yield index, np.flatnonzero(settings == index)

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> "Moves":
        """Some of the moves."""
        return Moves(**{name: getattr(self, name)[places] for name in self.__slots__})


def best_moves(cover: Cover) -> Iterator[Moves]:
    """All moves of plans with the fewest devices and stages, from the input end."""
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
            yield Moves(
                label=label[fits],
                rest=rest[fits],
                pair=some.pair[place[fits]],
                degree=degree[fits],
                in_flight=space.numbers_in_flight(total[fits], degree[fits]),
            )


def doubtful_moves(cover: Cover, most: int) -> list[Placement]:
    """Stages of the best plans that may break the threshold after all, the first so many."""
    found: dict[Placement, None] = {}
    for moves in best_moves(cover):
        for index, some in moves.in_settings(cover):
            part = moves.take(some)
            found |= dict.fromkeys(part.take(_in_doubt(cover, index, part)).placements())
        if len(found) >= most:
            break
    return list(found)[:most]


def _in_doubt(cover: Cover, setting: int, moves: Moves) -> NDArray[np.bool_]:
    space, costs = cover.space, cover.space.settings[setting]
    outer, inner = space.pairs.outer[moves.pair], space.pairs.inner[moves.pair]
    position = moves.degree - space.first_degree[setting]
    slack = space.budgets(cover.threshold, setting, outer, inner, position)
    slack -= costs.least[moves.pair]
    doubtful: NDArray[np.bool_] = moves.in_flight > costs.most_in_flight(
        outer, inner, slack, surely=True
    )
    return doubtful
