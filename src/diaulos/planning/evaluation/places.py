"""Where the stages of a plan stand on the cluster's line of devices, and which links they use."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.errors import InputError
from diaulos.planning.plan import Plan, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlace:
    """What a stage meets where it stands."""

    group: DeviceGroup
    link_before: Link
    """To the stage before it."""
    link_behind: Link
    """To the stage behind it."""
    link_inside: Link
    """Among its replicas."""


def placed(plan: Plan, cluster: Cluster) -> tuple[int, ...]:
    """The first device of each stage: as the plan states it, else one after another.

    Stages that state no place start from device 0, each at the next device from which its
    tensor-parallel groups stay inside nodes and it lies in one group of devices. An `InputError`
    where the line of a cluster of several nodes ends before that.
    """
    firsts = []
    start = 0
    for number, stage in enumerate(plan.stages):
        first = stage.first_device
        if first is None:
            first = start if cluster.is_flat else _next_place(cluster, number, stage, start)
        firsts.append(first)
        start = first + stage.devices
    return tuple(firsts)


def on_devices(plan: Plan, cluster: Cluster) -> Plan:
    """The plan with the place of each stage stated, see `placed`."""
    firsts = placed(plan, cluster)
    stages = zip(plan.stages, firsts, strict=True)
    return replace(
        plan, stages=tuple(replace(stage, first_device=first) for stage, first in stages)
    )


def shard_place(
    plan: Plan, cluster: Cluster, *, stage: int, replica: int, shard: int
) -> tuple[int, int]:
    """The node of a shard of a replica of a stage, and its device there."""
    degree = plan.stages[stage].tensor_parallel
    return cluster.place_of(placed(plan, cluster)[stage] + replica * degree + shard)


def stage_places(plan: Plan, cluster: Cluster) -> tuple[StagePlace, ...]:
    """The group and the links of each stage of a plan."""
    lines = [
        range(first, first + stage.devices)
        for first, stage in zip(placed(plan, cluster), plan.stages, strict=True)
    ]
    return tuple(
        stage_place(
            cluster,
            devices,
            before=lines[number - 1][-1] if number else None,
            behind=lines[number + 1][0] if number + 1 < len(lines) else None,
        )
        for number, devices in enumerate(lines)
    )


def stage_place(
    cluster: Cluster, devices: range, *, before: int | None, behind: int | None
) -> StagePlace:
    """What a stage on these devices meets, between the nearest devices of its neighbours.

    A border is inside a node where the whole stage and the neighbour's device are; a border
    without a neighbour is inside.
    """
    if cluster.is_flat:
        group = cluster.groups[0]
        link = group.link
        return StagePlace(group=group, link_before=link, link_behind=link, link_inside=link)
    group, node = cluster.group_of(devices[0]), cluster.node_of(devices[0])
    within = cluster.node_of(devices[-1]) == node

    def link_to(neighbour: int | None) -> Link:
        near = neighbour is None or (within and cluster.node_of(neighbour) == node)
        return group.link if near else cluster.link

    return StagePlace(
        group=group,
        link_before=link_to(before),
        link_behind=link_to(behind),
        link_inside=group.link if within else cluster.link,
    )


def misplacements(cluster: Cluster, devices: range, tensor_parallel: int) -> Iterator[str]:
    """Why a stage cannot stand on these devices, each as the rest of a sentence about it."""
    first, last = devices[0], devices[-1]
    if last >= cluster.devices:
        yield f"stands on devices {first} to {last}, the cluster has {cluster.devices}"
        return
    groups = cluster.group_of(first), cluster.group_of(last)
    if groups[0] != groups[1]:
        yield f"stands in two groups of devices, {groups[0].name} and {groups[1].name}"
    for shards in (
        devices[i : i + tensor_parallel] for i in range(0, len(devices), tensor_parallel)
    ):
        if cluster.node_of(shards[0]) != cluster.node_of(shards[-1]):
            yield (
                f"has a tensor-parallel group on devices {shards[0]} to {shards[-1]}, which are "
                "in different nodes"
            )
            return


def describe_devices(cluster: Cluster, devices: range) -> list[str]:
    """Devices by node, for a reader: `node 0: 4-7`, `nodes 1-3: 0-7`."""
    by_node = groupby(map(cluster.place_of, devices), key=itemgetter(0))
    lines = [(node, [inside for _, inside in places]) for node, places in by_node]
    described = []
    for insides, run in groupby(lines, key=itemgetter(1)):
        nodes = [node for node, _ in run]
        noun = "node" if len(nodes) == 1 else "nodes"
        described.append(f"{noun} {_ends(nodes)}: {_ends(insides)}")
    return described


def place_violations(plan: Plan, cluster: Cluster) -> list[str]:
    """Every rule of places that a plan breaks, one sentence each."""
    try:
        firsts = placed(plan, cluster)
    except InputError as error:
        return [str(error)]
    if not plan.is_placed:
        return []
    found = []
    for number, (stage, first) in enumerate(zip(plan.stages, firsts, strict=True)):
        devices = range(first, first + stage.devices)
        found += [
            f"stage {number} {problem}"
            for problem in misplacements(cluster, devices, stage.tensor_parallel)
        ]
    for number, (stage, (first, following)) in enumerate(
        zip(plan.stages[:-1], pairwise(firsts), strict=True)
    ):
        if following < first + stage.devices:
            found.append(
                f"stage {number} ends on device {first + stage.devices - 1}, stage {number + 1} "
                f"starts on device {following}, not behind it"
            )
    return found


def _next_place(cluster: Cluster, number: int, stage: Stage, start: int) -> int:
    for first in range(start, cluster.devices - stage.devices + 1):
        devices = range(first, first + stage.devices)
        if not any(misplacements(cluster, devices, stage.tensor_parallel)):
            return first
    raise InputError(
        f"stage {number} finds no {stage.devices} devices from device {start} on",
        f"the cluster has {cluster.devices}; a stage lies in one group of devices, and each of "
        "its tensor-parallel groups in one node",
        "use smaller degrees",
    )


def _ends(numbers: list[int]) -> str:
    """Consecutive numbers by the first and the last."""
    return "-".join(str(number) for number in dict.fromkeys((numbers[0], numbers[-1])))
