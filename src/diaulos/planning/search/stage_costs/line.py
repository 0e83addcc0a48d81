"""The line of devices, counted from the end where the last stage stands.

On a flat cluster only the number of devices counts, and none of this is needed. Elsewhere a stage
takes the devices next to those of the stage behind it, or further on in the same node where that
keeps its tensor-parallel groups inside nodes; and it may leave idle what is left of its last node,
or all that is left of its group.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from diaulos.clusters.cluster import Cluster
from diaulos.planning.search.stage_costs.costs import Setting

_Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degree:
    """Degrees and a place that a stage can have, in one setting."""

    setting: int
    position: int
    """Among the data-parallel degrees of the setting."""
    data_parallel: int
    devices: int


@dataclass(frozen=True, kw_only=True)
class Line:
    """Where stages can stand; places are numbers of devices before them, from the line's end."""

    cluster: Cluster
    settings: tuple[Setting, ...]
    degrees: tuple[Degree, ...]

    @cached_property
    def _group_ends(self) -> _Places:
        """Where each group ends, by its index in the cluster, counted from the line's end."""
        sizes = [group.devices for group in self.cluster.groups]
        ends: _Places = np.cumsum(sizes[::-1])[::-1]
        return ends

    @cached_property
    def _node_sizes(self) -> _Places:
        return np.array([group.devices_per_node for group in self.cluster.groups])

    @cached_property
    def _by_degree(self) -> dict[str, NDArray[np.int64]]:
        settings = [self.settings[degree.setting] for degree in self.degrees]
        return {
            "devices": np.array([degree.devices for degree in self.degrees]),
            "shards": np.array([setting.tensor_parallel for setting in settings]),
            "group": np.array([setting.group for setting in settings]),
            "spans": np.array([setting.spans_nodes for setting in settings]),
            "enters": np.array([setting.enters_node for setting in settings]),
            "leaves": np.array([setting.leaves_node for setting in settings]),
        }

    def kinds(self, ends: _Places) -> _Places:
        """Places from which the line looks alike have one kind."""
        group = self._group_at(ends)
        offset = (ends - self._starts()[group]) % self._node_sizes[group]
        result: _Places = group * int(self._node_sizes.max()) + offset
        return result

    def first_ends(self) -> _Places:
        """Where the last stage can begin: at the line's end, or that of an earlier group."""
        return np.sort(self._starts())

    @cached_property
    def most_kinds(self) -> int:
        """More than any kind."""
        return (len(self.cluster.groups) + 1) * int(self._node_sizes.max())

    def placements(
        self, end: _Places, degree: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], _Places, _Places]]:
        """Ways to place stages of some degrees before what is taken up to some places.

        Each gives the indices of those that can stand so, where their devices end, and up to where
        the line is taken then.
        """
        yield from self._ends(np.arange(len(degree)), end, 0, degree)
        # Only a stage on several nodes can gain from beginning further on in the same node.
        spanning = np.flatnonzero(self._by_degree["spans"][degree])
        for idle in range(1, int(self._node_sizes.max()) if len(spanning) else 0):
            yield from self._ends(spanning, end, idle, degree)

    def end_of(self, begin: int, degree: int, taken: int) -> int:
        """Where the devices of a stage end that takes the line from one place to another.

        It may leave some idle: the last of them, or the first where it stands on several nodes.
        """
        ways = self.placements(np.array([begin]), np.array([degree]))
        return min(int(last[0]) for some, last, up_to in ways if len(some) and up_to[0] == taken)

    def _starts(self) -> _Places:
        starts: _Places = np.append(self._group_ends[1:], 0)
        return starts

    def _group_at(self, place: _Places) -> NDArray[np.int64]:
        """The group of the device at a place; the first group's beyond the line's end."""
        inside = np.searchsorted(self._group_ends[::-1], place, side="right")
        return np.maximum(len(self._group_ends) - 1 - inside, 0)

    def _ends(
        self, some: NDArray[np.int64], end: _Places, idle: int, degree: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], _Places, _Places]]:
        """The same for some of them, which begin so many devices further on."""
        table = {name: values[degree[some]] for name, values in self._by_degree.items()}
        end = end[some]
        first = end + idle
        group = table["group"]
        size, start = self._node_sizes[group], self._starts()[group]
        last = first + table["devices"]
        offset = (first - start) % size
        at_border = (end - start) % size == 0
        spans = offset + table["devices"] > size
        fits = (first >= start) & (last <= self._group_ends[group]) & (spans == table["spans"])
        fits &= (end - start) // size == (first - start) // size
        fits &= ~spans | self._keeps_shards_together(offset, table)
        fits &= spans | (table["leaves"] == at_border)
        last_at_border = (last - start) % size == 0
        enters = table["enters"].astype(np.bool_)
        as_it_is = np.flatnonzero(fits & (spans | (enters == last_at_border)))
        yield some[as_it_is], last[as_it_is], last[as_it_is]
        to_border = np.flatnonzero(fits & enters & ~last_at_border)
        border: _Places = last + np.remainder(start - last, size)
        yield some[to_border], last[to_border], border[to_border]
        for further in self._starts()[:-1].tolist() if len(self._group_ends) > 1 else ():
            skipping = np.flatnonzero(fits & enters & (last < further))
            up_to: _Places = np.full(len(skipping), further)
            yield some[skipping], last[skipping], up_to

    def _keeps_shards_together(
        self, offset: _Places, table: dict[str, NDArray[np.int64]]
    ) -> NDArray[np.bool_]:
        """Whether no tensor-parallel group of a stage lies across a border of nodes."""
        size, shards = self._node_sizes[table["group"]], table["shards"]
        together: NDArray[np.bool_] = offset % shards == 0
        if not (size % shards).any():
            return together
        replicas = table["devices"] // shards
        together = np.ones(len(offset), np.bool_)
        different = size // np.gcd(size, shards)  # Then they lie in a node as the first again.
        for replica in range(int(np.minimum(different, replicas).max(initial=0))):
            begins = (offset + replica * shards) % size
            together &= (replica >= replicas) | (begins + shards <= size)
        return together
