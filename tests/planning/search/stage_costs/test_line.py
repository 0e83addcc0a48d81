"""Places on the line of devices, against every place of every stage on small clusters."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import pytest

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.planning.evaluation.places import misplacements, stage_place
from diaulos.planning.search.stage_costs.costs import Setting
from diaulos.planning.search.stage_costs.line import Degree, Line

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


def met_by(cluster: Cluster, stages: list[range]) -> tuple[Met, ...]:
    """What stages on these devices meet, from the definition; nothing crosses the line's ends."""
    places = [
        stage_place(
            cluster,
            devices,
            before=stages[i - 1][-1] if i else None,
            behind=stages[i + 1][0] if i + 1 < len(stages) else None,
        )
        for i, devices in enumerate(stages)
    ]
    return without_ends(
        [
            (
                cluster.groups.index(place.group),
                place.link_inside == BETWEEN,
                place.link_before == BETWEEN,
                place.link_behind == BETWEEN,
            )
            for place in places
        ]
    )


def without_ends(met: list[Met]) -> tuple[Met, ...]:
    """The same without the borders that nothing crosses, before the first stage and after the last.

    A stage on several nodes has none but borders between nodes.
    """
    first, last = 0, len(met) - 1
    return tuple(
        (
            group,
            spans,
            enters and (number != first or spans),
            leaves and (number != last or spans),
        )
        for number, (group, spans, enters, leaves) in enumerate(
            (g, s, e or s, b or s) for g, s, e, b in met
        )
    )


def every_way(cluster: Cluster, shapes: list[Shape]) -> set[tuple[Met, ...]]:
    """What stages meet in all ways to put them on the line."""

    def lines(shapes: list[Shape], start: int) -> Iterator[list[range]]:
        if not shapes:
            yield []
            return
        d, t = shapes[0]
        for first in range(start, cluster.devices - d * t + 1):
            devices = range(first, first + d * t)
            if not any(misplacements(cluster, devices, t)):
                yield from ([devices, *rest] for rest in lines(shapes[1:], devices[-1] + 1))

    return {met_by(cluster, stages) for stages in lines(shapes, 0)}


@dataclass(frozen=True)
class Way:
    """Stages from some stage on, as the line offers to place them."""

    taken: int
    stages: tuple[range, ...] = ()
    met: tuple[Met, ...] = ()
    """As the settings of the stages say."""


def ways_found(line: Line, shapes: list[Shape]) -> set[Way]:
    """All ways that the line offers, from the output end."""
    states = {Way(int(end)) for end in line.first_ends()}
    for shape in reversed(shapes):
        states = {longer for way in states for longer in before(line, way, shape)}
    return states


def before(line: Line, way: Way, shape: Shape) -> Iterator[Way]:
    """Each way with a stage before it."""
    some = [
        index
        for index, degree in enumerate(line.degrees)
        if (degree.data_parallel, line.settings[degree.setting].tensor_parallel) == shape
    ]
    for rows, _, taken in line.placements(np.full(len(some), way.taken), np.array(some, np.int64)):
        for row, up_to in zip(rows.tolist(), taken.tolist(), strict=True):
            degree = line.degrees[some[row]]
            s = line.settings[degree.setting]
            first = line.cluster.devices - line.end_of(way.taken, some[row], up_to)
            now = (s.group, s.spans_nodes, s.enters_node, s.leaves_node)
            devices = range(first, first + degree.devices)
            yield Way(up_to, (devices, *way.stages), (now, *way.met))


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
def test_all_ways_are_found(cluster: Cluster, stages: int) -> None:
    """Whatever links stages can meet, some way on the line has them, and none is made up."""
    line = line_of(cluster)
    for shapes in product(SHAPES, repeat=stages):
        found = ways_found(line, list(shapes))
        assert {without_ends(list(way.met)) for way in found} == every_way(cluster, list(shapes))


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: str([g.devices for g in c.groups]))
def test_stages_stand_where_they_meet_what_they_should(cluster: Cluster) -> None:
    """On the devices that the line names, stages meet what their settings say, in order."""
    line = line_of(cluster)
    for shapes in product(SHAPES, repeat=3):
        for way in ways_found(line, list(shapes)):
            for (_, t), devices in zip(shapes, way.stages, strict=True):
                assert not list(misplacements(cluster, devices, t))
            assert all(one[-1] < other[0] for one, other in pairwise(way.stages))
            assert met_by(cluster, list(way.stages)) == without_ends(list(way.met))


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
