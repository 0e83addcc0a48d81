"""Places on the line of devices, against every place of every stage on small clusters."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.planning.places import misplacements, stage_place
from diaulos.planning.search.costs import Setting
from diaulos.planning.search.line import Degree, Line

Shape = tuple[int, int]
"""Data-parallel and tensor-parallel degree."""
Met = tuple[int, bool, bool, bool]
"""The group of a stage, and whether it spans, enters and leaves a node."""

INSIDE, BETWEEN = Link(bandwidth_bytes_per_second=9.0), Link(bandwidth_bytes_per_second=1.0)
WAYS = [(False, a, b) for a in (False, True) for b in (False, True)] + [(True, True, True)]


def cluster_of(*groups: tuple[int, int]) -> Cluster:
    """Groups of some nodes of some devices."""
    return Cluster(
        groups=tuple(
            DeviceGroup(
                name=f"group {i}", nodes=n, devices_per_node=d, memory_bytes=1.0, link=INSIDE
            )
            for i, (n, d) in enumerate(groups)
        ),
        link=BETWEEN,
    )


def line_of(cluster: Cluster) -> Line:
    """All settings at degrees up to three replicas of one or two shards."""
    settings, degrees = [], []
    for t, (index, group), (spans, enters, leaves) in product(
        (1, 2), enumerate(cluster.groups), WAYS
    ):
        if t <= group.devices_per_node:
            degrees += [
                Degree(setting=len(settings), position=d - 1, data_parallel=d, devices=d * t)
                for d in (1, 2, 3)
            ]
            settings.append(
                Setting(
                    tensor_parallel=t,
                    data_degrees=(1, 2, 3),
                    group=index,
                    spans_nodes=spans,
                    enters_node=enters,
                    leaves_node=leaves,
                )
            )
    return Line(cluster=cluster, settings=tuple(settings), degrees=tuple(degrees))


def every_way(cluster: Cluster, shapes: list[Shape]) -> set[tuple[Met, ...]]:
    """What stages meet in all ways to put them on the line, from the definition."""

    def lines(shapes: list[Shape], start: int) -> Iterator[list[range]]:
        if not shapes:
            yield []
            return
        d, t = shapes[0]
        for first in range(start, cluster.devices - d * t + 1):
            devices = range(first, first + d * t)
            if not any(misplacements(cluster, devices, t)):
                yield from ([devices, *rest] for rest in lines(shapes[1:], devices[-1] + 1))

    found = set()
    for stages in lines(shapes, 0):
        places = [
            stage_place(
                cluster,
                devices,
                before=stages[i - 1][-1] if i else None,
                behind=stages[i + 1][0] if i + 1 < len(stages) else None,
            )
            for i, devices in enumerate(stages)
        ]
        found.add(
            tuple(
                (
                    cluster.groups.index(place.group),
                    place.link_inside == BETWEEN,
                    place.link_before == BETWEEN,
                    place.link_behind == BETWEEN,
                )
                for place in places
            )
        )
    return found


def ways_found(line: Line, shapes: list[Shape]) -> set[tuple[Met, ...]]:
    """What the settings of stages say in all ways that the line offers, from the output end."""
    states: set[tuple[int, tuple[Met, ...]]] = {(int(end), ()) for end in line.first_ends()}
    for d, t in reversed(shapes):
        some = [
            index
            for index, degree in enumerate(line.degrees)
            if degree.data_parallel == d and line.settings[degree.setting].tensor_parallel == t
        ]
        following = set()
        for end, met in states:
            ends = np.full(len(some), end)
            for places, new_ends in line.placements(ends, np.array(some)):
                for place, new_end in zip(places.tolist(), new_ends.tolist(), strict=True):
                    s = line.settings[line.degrees[some[place]].setting]
                    now = (s.group, s.spans_nodes, s.enters_node, s.leaves_node)
                    following.add((new_end, (now, *met)))
        states = following
    return {met for _, met in states}


def is_no_worse(one: tuple[Met, ...], other: tuple[Met, ...]) -> bool:
    """Whether the same groups are used and no link between nodes that the other does not use.

    Nothing crosses the borders at both ends of the pipeline.
    """
    last = len(one) - 1
    return all(
        mine[0] == its[0]
        and mine[1] <= its[1]
        and (number == 0 or mine[2] <= its[2])
        and (number == last or mine[3] <= its[3])
        for number, (mine, its) in enumerate(zip(one, other, strict=True))
    )


CLUSTERS = [
    cluster_of((2, 2)),
    cluster_of((3, 2)),
    cluster_of((2, 3)),
    cluster_of((2, 4)),
    cluster_of((1, 3), (1, 2)),
    cluster_of((2, 2), (1, 3)),
]
SHAPES = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: str([g.devices for g in c.groups]))
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_no_way_is_better_than_those_found(cluster: Cluster, stages: int) -> None:
    """Each way to place stages has one on the line that is no worse, and none is made up."""
    line = line_of(cluster)
    for shapes in product(SHAPES, repeat=stages):
        real, found = every_way(cluster, list(shapes)), ways_found(line, list(shapes))
        assert all(any(is_no_worse(mine, its) for mine in found) for its in real)
        assert all(any(is_no_worse(its, mine) for its in real) for mine in found)


def test_kinds_tell_places_apart() -> None:
    """Places have one kind where what comes after them is the same: group and part of a node."""
    line = line_of(cluster_of((2, 2), (1, 3)))
    kinds = line.kinds(np.arange(7)).tolist()
    # From the line's end: three devices of the second group, then two nodes of the first.
    assert kinds[3] == kinds[5]
    assert kinds[4] == kinds[6]
    assert len(set(kinds[:5])) == 5
    assert max(kinds) < line.most_kinds
    assert line.first_ends().tolist() == [0, 3]
