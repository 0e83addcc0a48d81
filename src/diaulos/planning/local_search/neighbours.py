"""Outlines that differ little from one: the steps of a local search."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np

from diaulos.planning.local_search.balance import Balance
from diaulos.planning.local_search.outlines import Degrees, Outline, Outlines


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The outlines that differ from one in one or two stages; whether they fit is not looked at.

    Where degrees change, the stages are cut anew so that they balance, besides as they were.
    """

    outlines: Outlines
    balance: Balance

    def of(self, outline: Outline) -> Iterator[Outline]:
        """All of them, some perhaps twice."""
        yield from self._shifted(outline)
        yield from self._exchanged(outline)
        for degrees in dict.fromkeys(self._other_degrees(outline.degrees)):
            if self.outlines.within_limits(degrees):
                if len(degrees) == len(outline.degrees):
                    yield replace(outline, degrees=degrees)
                balanced = self.balance.outline(degrees)
                if balanced is not None:
                    yield balanced

    def _shifted(self, outline: Outline) -> Iterator[Outline]:
        """A layer changes over a border."""
        for border in range(1, len(outline.cuts) - 1):
            outer, cut, inner = outline.cuts[border - 1 : border + 2]
            for near in self._beside(cut):
                if near not in (outer, inner) and self._nested(outer, near, inner):
                    yield _with_cut(outline, border, near)

    def _exchanged(self, outline: Outline) -> Iterator[Outline]:
        """The layers of two stages that follow one another change places."""
        members = self.outlines.members
        for border in range(1, len(outline.cuts) - 1):
            outer, cut, inner = (members[i] for i in outline.cuts[border - 1 : border + 2])
            other = self.outlines.index_of.get(inner | (outer - cut))
            if other is not None:
                yield _with_cut(outline, border, other)

    def _other_degrees(self, degrees: tuple[Degrees, ...]) -> Iterator[tuple[Degrees, ...]]:
        """One stage or two have other degrees, two become one, one becomes two, or one is added."""
        stages = range(len(degrees))
        for place, some in product(range(len(degrees) + 1), self.outlines.all_degrees):
            yield (*degrees[:place], some, *degrees[place:])
            for smaller in self._with_one_smaller(degrees):
                yield (*smaller[:place], some, *smaller[place:])
        for stage, some in product(stages, self.outlines.all_degrees):
            yield _with_degrees(degrees, {stage: some})
        for one, other in combinations(stages, 2):
            for pair in product(self._next(degrees[one]), self._next(degrees[other])):
                yield _with_degrees(degrees, {one: pair[0], other: pair[1]})
            yield _with_degrees(degrees, {one: degrees[other], other: degrees[one]})
        for stage in stages:
            before, behind = degrees[:stage], degrees[stage + 1 :]
            near = (degrees[stage], *self._next(degrees[stage]))
            for two in product(near, repeat=2):
                yield (*before, *two, *behind)
            for merged in (before[-1], *self._next(before[-1]), *near) if before else ():
                yield (*before[:-1], merged, *behind)

    def _with_one_smaller(self, degrees: tuple[Degrees, ...]) -> Iterator[tuple[Degrees, ...]]:
        for stage, known in enumerate(degrees):
            for some in self._next(known):
                if some.devices < known.devices:
                    yield _with_degrees(degrees, {stage: some})

    def _beside(self, cut: int) -> Iterator[int]:
        """The downsets with one layer more or less."""
        layers, index_of = self.outlines.members[cut], self.outlines.index_of
        everything = self.outlines.members[-1]
        for changed in (*(layers - {i} for i in layers), *(layers | {i} for i in everything)):
            near = index_of.get(changed)
            if near is not None and near != cut:
                yield near

    def _nested(self, outer: int, cut: int, inner: int) -> bool:
        members = self.outlines.members
        return members[inner] < members[cut] < members[outer]

    def _next(self, degrees: Degrees) -> Iterator[Degrees]:
        """The next larger and smaller data- and tensor-parallel degrees."""
        problem = self.outlines.judge.space.problem
        for t in _beside(problem.tensor_degrees, degrees.tensor_parallel):
            yield replace(degrees, tensor_parallel=t)
        for d in _beside(problem.data_degrees, degrees.data_parallel):
            yield replace(degrees, data_parallel=d)


def _beside(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    """The values before and behind one in an ascending row."""
    place = int(np.searchsorted(values, value))
    return values[max(place - 1, 0) : place] + values[place + 1 : place + 2]


def _with_cut(outline: Outline, border: int, cut: int) -> Outline:
    return replace(outline, cuts=(*outline.cuts[:border], cut, *outline.cuts[border + 1 :]))


def _with_degrees(degrees: tuple[Degrees, ...], changed: dict[int, Degrees]) -> tuple[Degrees, ...]:
    return tuple(changed.get(stage, some) for stage, some in enumerate(degrees))
