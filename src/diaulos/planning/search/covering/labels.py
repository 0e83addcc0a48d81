"""Labels: ways to run the layers of a downset, of which only those that none beats are kept.

A label says what the stages of the downset come to: the sum of their data-parallel degrees, which
decides how many microbatches are in flight in the stages before them; the devices that they take
and how many they are, packed into one number; and the latency that a flush exposes.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_SEGMENT = 1 << 40
_ROWS, _PACKED = 7, 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Labels in the making: the rows of `data` are what the properties say."""

    data: NDArray[np.int64]

    @staticmethod
    def of(
        *,
        downset: NDArray[np.int32],
        total: NDArray[np.int64],
        packed: NDArray[np.int64],
        latency: NDArray[np.int64],
        parent: NDArray[np.int64],
        pair: NDArray[np.int64],
        degree: NDArray[np.int64],
    ) -> "Rows":
        """Labels of these columns."""
        return Rows(np.array((total, packed, latency, parent, pair, degree, downset), np.int64))

    def __len__(self) -> int:
        return int(self.data.shape[1])

    def _column(self, index: int) -> NDArray[np.int64]:
        column: NDArray[np.int64] = self.data[index]
        return column

    def take(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> "Rows":
        """Some of the labels, in the order of `places`."""
        return Rows(self.data[:, places])

    @property
    def total(self) -> NDArray[np.int64]:
        """Sum of the data-parallel degrees."""
        return self._column(0)

    @property
    def packed(self) -> NDArray[np.int64]:
        """Devices times `Space.weight`, plus stages."""
        return self._column(1)

    @property
    def latency(self) -> NDArray[np.int64]:
        """Of one microbatch, as far as a flush exposes it."""
        return self._column(2)

    @property
    def parent(self) -> NDArray[np.int64]:
        """The label of the stages behind the first one."""
        return self._column(3)

    @property
    def pair(self) -> NDArray[np.int64]:
        """The first stage."""
        return self._column(4)

    @property
    def degree(self) -> NDArray[np.int64]:
        """Of the first stage, an index of `Space.degrees`."""
        return self._column(5)

    @property
    def downset(self) -> NDArray[np.int64]:
        """Whose label it is."""
        return self._column(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """By downset, between what the sums of data-parallel degrees of its labels lie."""

    least: NDArray[np.int64]
    most: NDArray[np.int64]
    """Below 0 where there is no label."""


class Labels:
    """All labels found so far, ordered by downset; the `first` ones are those of the empty one."""

    def __init__(self, first_packed: NDArray[np.int64]) -> None:
        self.first = self._size = len(first_packed)
        self._data = np.zeros((_ROWS, 1024), np.int64)
        self._data[_PACKED, : self.first] = first_packed

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> Rows:
        """The labels in the order in which they were added: by downset, then by sum."""
        return Rows(self._data[:, : self._size])

    def of(self, downset: int) -> NDArray[np.int64]:
        """The labels of a downset."""
        known = self.rows.downset
        return np.arange(known.searchsorted(downset), known.searchsorted(downset, side="right"))

    def least(self, downsets: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The least sum of degrees and the least packed number of each downset's labels."""
        total, packed = (np.full(downsets, _SEGMENT) for _ in range(2))
        np.minimum.at(total, self.rows.downset, self.rows.total)
        np.minimum.at(packed, self.rows.downset, self.rows.packed)
        return total, packed

    def totals(self, downsets: int, *, known: int) -> Totals:
        """Between what the sums of labels lie; of downsets from `known` on labels may follow."""
        least, most = np.zeros(downsets, np.int64), np.full(downsets, _SEGMENT)
        least[:known], most[:known] = _SEGMENT, -1
        np.minimum.at(least, self.rows.downset, self.rows.total)
        np.maximum.at(most, self.rows.downset, self.rows.total)
        return Totals(least=least, most=most)

    def following(self, downsets: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Each downset with each of its labels: its place in `downsets`, and the label."""
        known = self.rows.downset
        start = known.searchsorted(downsets)
        counts = known.searchsorted(downsets, side="right")
        counts -= start
        place = np.arange(len(downsets)).repeat(counts)
        start += counts
        start -= counts.cumsum()
        return place, np.arange(len(place)) + start[place]

    def add(self, rows: Rows) -> None:
        """Add the labels of downsets that come after all that have some, ordered by downset."""
        end = self._size + len(rows)
        if end > self._data.shape[1]:
            data = np.zeros((_ROWS, max(end, 2 * self._data.shape[1])), np.int64)
            data[:, : self._size] = self._data[:, : self._size]
            self._data = data
        self._data[:, self._size : end] = rows.data
        self._size = end


def unbeaten(rows: Rows, segment: NDArray[np.int64], *, keep_ties: bool) -> Rows:
    """The rows of which no other in the same segment is as good in every respect, ordered by it.

    With `keep_ties` rows with a larger sum stay if they take no more devices and stages.
    """
    if len(rows) == 1:
        return rows
    if rows.latency.any():
        order = np.lexsort((rows.latency, rows.packed, rows.total, segment))
        rows, segment = rows.take(order), segment[order]
        return rows.take(_unbeaten_in_three(rows, segment))
    order = np.lexsort((rows.packed, rows.total, segment))
    value = (rows.packed - segment * _SEGMENT)[order]
    keep = np.ones(len(order), np.bool_)
    least_before = np.minimum.accumulate(value)[:-1]
    keep[1:] = value[1:] < least_before
    if keep_ties:
        place = (segment * _SEGMENT + rows.total)[order]
        keep[1:] |= (value[1:] == least_before) & (place[1:] != place[:-1])
    return rows.take(order[keep])


def _unbeaten_in_three(rows: Rows, segment: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same with latencies; rows are ordered by segment, sum, devices and latency."""
    kept = []
    ends = np.flatnonzero(np.diff(segment)) + 1
    for first, last in pairwise([0, *ends.tolist(), len(segment)]):
        left = np.arange(first, last)
        while len(left):
            best, left = left[0], left[1:]
            kept.append(best)
            beaten = (rows.packed[left] >= rows.packed[best]) & (
                rows.latency[left] >= rows.latency[best]
            )
            left = left[~beaten]
    return np.array(kept, np.int64)
